"""Clients of an outbox, side by side with an oracle that computes the required answers from the rule table."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar

from fencehold.model.outbox.new_events import NewEvent, new_event, new_tracking_id
from fencehold.model.outbox.rules import Request, Status, Stored, Verb, apply
from fencehold.model.outbox.settings import outbox_settings
from fencehold.ports.events import Claim, ClaimAsk, ClaimKey, EventPort, EventRow, Events, Failure, Filter, Recovered
from fencehold.testing.conformance.oracle import ClientsAndOracle, RuleOracle
from fencehold.testing.conformance.suite import START, Supply, WithoutLeases, needs
from fencehold.testing.harness import CALL_LIMIT_S, Can, Harness

LEASE_S = 60.0
LEASE = dt.timedelta(seconds=LEASE_S)
SETTINGS = outbox_settings()
EVERYTHING = 10_000


def event(event_type: str = "order.paid", payload: Any = None, max_retries: int = 5, **fields: Any) -> NewEvent:
    """Return a new event that is checked and serialised as the library does it."""
    made = new_event(SETTINGS, event_type, {"schema_version": 1} if payload is None else payload, **fields)
    made.max_retries = max_retries
    return made


def stray(token: str = "ada") -> ClaimKey:
    """Return the key of an event that never existed."""
    return ClaimKey(123_456_789, token, new_tracking_id())


def ask(token: str, limit: int = EVERYTHING, lease_s: float = LEASE_S, **fields: Any) -> ClaimAsk:
    return ClaimAsk(limit, token, lease_s, **fields)


async def claim(port: EventPort, token: str, limit: int = EVERYTHING, **fields: Any) -> list[Claim]:
    return (await port.turn([], ask(token, limit, **fields), CALL_LIMIT_S)).claims


async def add_in(events: Events, target: object, made: Sequence[NewEvent]) -> list[str]:
    """Add these events in the transaction that is open on `target`; return the tracking ids of those that were new."""
    return await events.in_tx.add(target, made, await events.in_tx.identity(CALL_LIMIT_S))


async def first_time(events: Events, tracking_id: str, consumer_id: str, target: object) -> bool:
    return await events.in_tx.first_time(tracking_id, consumer_id, target, await events.in_tx.identity(CALL_LIMIT_S))


SOME_ERROR = "(the store's own words)"
CLAIMABLE = (Status.PENDING, Status.FAILED)


@dataclass
class Expected:
    """The row of one event as the rule table requires it."""

    id: int
    new: NewEvent
    created_at: dt.datetime
    stored: Stored

    @property
    def key(self) -> ClaimKey:
        """The key of the event's present claim; if nobody has claimed it, a key with the token "nobody"."""
        return ClaimKey(self.id, self.stored.lock_token or "nobody", self.new.tracking_id)


class EventOracle(RuleOracle):
    """Computes from the rule table in model/outbox/rules.py alone which events a store must have, and its answers."""

    table = "outbox"
    rows: dict[int, Expected]

    def add(self, event_id: int, new: NewEvent, now: dt.datetime) -> None:
        due_at = new.not_before or now + dt.timedelta(seconds=new.delay_s)
        stored = Stored(Status.PENDING, due_at, max_retries=new.max_retries)
        self.rows[event_id] = Expected(event_id, new, now, stored)

    def change(self, event_id: int, verb: Verb, request: Request) -> bool:
        """Apply the verb to the event by the rule table; return whether the table allows it."""
        row = self.rows.get(event_id)
        if row is None:
            return False
        rule, stored = apply(row.stored, verb, request) or (None, row.stored)
        self.decided(event_id, rule, row.stored.status, verb)
        row.stored = stored
        return rule is not None

    def claim(self, ask: ClaimAsk, now: dt.datetime) -> list[int]:
        """Claim by the rule table, and return the ids of the events that the store must claim, in this order."""
        request = Request(now, ask.token, ask.lease_s)
        candidates = [row for row in self.rows.values() if self._may_be_claimed(row, ask)]
        urgent = sorted(candidates, key=lambda row: (-row.new.priority, row.stored.due_at, row.id))
        claimed: list[int] = []
        for row in urgent:
            if len(claimed) < ask.limit and self.change(row.id, Verb.CLAIM, request):
                claimed.append(row.id)
        return claimed

    def reap(self, limit: int, now: dt.datetime) -> list[int]:
        """Recover lapsed events by the rule table, and return their ids, the event that lapsed first at the front."""
        never = now + dt.timedelta(days=36_500)
        lapsed_first = sorted(self.rows.values(), key=lambda row: (row.stored.locked_until or never, row.id))
        recovered: list[int] = []
        for row in lapsed_first:
            if len(recovered) < limit and self.change(row.id, Verb.REAP, Request(now, error=SOME_ERROR)):
                recovered.append(row.id)
        return recovered

    def redrive(self, ids: Sequence[int], cause: str, limit: int, spread_s: float, now: dt.datetime) -> list[int]:
        """Redrive events by the rule table, and return the ids of those that must be PENDING again, oldest first."""
        revived: list[int] = []
        for event_id in sorted(ids):
            request = Request(now, delay_s=len(revived) * spread_s, root_cause=cause)
            if len(revived) < limit and self.change(event_id, Verb.REDRIVE, request):
                revived.append(event_id)
        return revived

    def _may_be_claimed(self, row: Expected, ask: ClaimAsk) -> bool:
        if ask.event_types is not None and row.new.event_type not in ask.event_types:
            return False
        return not ask.in_order or row.new.aggregate_id is None or not self._is_blocked(row)

    def _is_blocked(self, row: Expected) -> bool:
        """Whether another event of the same aggregate is held by a worker, or is unfinished and older."""
        mine = (row.new.aggregate_type, row.new.aggregate_id)
        others = (o for o in self.rows.values() if (o.new.aggregate_type, o.new.aggregate_id) == mine and o is not row)
        return any(
            other.stored.status is Status.PROCESSING or (other.stored.status in CLAIMABLE and other.id < row.id)
            for other in others
        )


def agree(got: EventRow, expected: Expected, what: str) -> None:
    """Fail unless the store's row is the row that the rule table requires."""
    stored = expected.stored
    if stored.last_error == SOME_ERROR:
        assert got.last_error, f"{what}: a recovered event says nothing of why"
        stored = replace(stored, last_error=got.last_error)
    new = expected.new
    row = EventRow(
        expected.id, new.tracking_id, new.event_type, new.aggregate_id, new.aggregate_type, new.payload, new.metadata,
        stored.status, new.priority, expected.created_at, stored.due_at, stored.processed_at, stored.retry_count,
        stored.max_retries, stored.locked_until, stored.lock_token, stored.last_error, stored.root_cause,
        got.waits_s, got.held_s,
    )  # fmt: skip
    assert got == row, f"{what}:\n  the store says {got}\n  the table says {row}"


class Pair(ClientsAndOracle[Events, EventOracle]):
    """The events in the store and in the oracle: every call goes to both, and a difference fails.

    The oracle computes from the rule table what the store must answer.
    """

    @classmethod
    async def of(cls, harness: Harness, clients: int = 1) -> Pair:
        await harness.set_clock(START)
        return cls(harness, [await harness.events() for _ in range(clients)], EventOracle)

    def key(self, event_id: int, token: str) -> ClaimKey:
        """Return the key of this event with this token, whoever holds the event."""
        return ClaimKey(event_id, token, self.oracle.rows[event_id].new.tracking_id)

    async def add(self, *events: NewEvent) -> list[int]:
        added = await self.client.port.add(events, CALL_LIMIT_S)
        assert sorted(added) == sorted(one.tracking_id for one in events)
        rows = await self.client.admin.find(Filter(tracking_ids=tuple(added)), EVERYTHING, CALL_LIMIT_S)
        ids = {row.tracking_id: row.id for row in rows}
        for one in events:
            self.oracle.add(ids[one.tracking_id], one, self.now)
        return await self._checked([ids[one.tracking_id] for one in events], "add")

    async def claim(self, ask: ClaimAsk, completed: Sequence[ClaimKey] = ()) -> list[int]:
        expected_done = self._allowed(Verb.COMPLETE, completed)
        expected = self.oracle.claim(ask, self.now)
        turn = await self.client.port.turn(completed, ask, CALL_LIMIT_S)
        assert set(turn.completed) == set(expected_done)
        assert [one.id for one in turn.claims] == expected, f"claimed with {ask}"
        for one in turn.claims:  # other tests check which events are suspects
            plain = replace(one, lease_s=0.0, recovered=False, is_suspect=False)
            assert asdict(plain) == asdict(self._claim(one.id, ask))
        await self._checked([*expected, *(key.id for key in completed)], f"claim {ask}")
        return expected

    async def change(self, verb: Verb, keys: Sequence[ClaimKey], lease_s: float = LEASE_S) -> list[int]:
        """Call the verb (renew, complete or release) with these keys.

        Return the ids of events that were not refused.
        """
        expected = self._allowed(verb, keys, lease_s=lease_s)
        port = self.client.port
        match verb:
            case Verb.RENEW:
                until = await port.renew(keys, lease_s, CALL_LIMIT_S)
                assert set(until.values()) <= {self.now + dt.timedelta(seconds=lease_s)}
                got: Iterable[ClaimKey] = until
            case Verb.COMPLETE:
                got = (await port.turn(keys, None, CALL_LIMIT_S)).completed
            case _:
                got = await port.release(keys, CALL_LIMIT_S)
        assert sorted((key.id, key.token) for key in got) == sorted((key.id, key.token) for key in expected), verb
        await self._checked([key.id for key in keys], f"{verb.value} {keys}")
        return [key.id for key in expected]

    async def fail(self, *failures: Failure) -> list[int]:
        expected = {}
        for one in failures:
            request = Request(self.now, one.key.token, error=one.error, delay_s=one.delay_s, retry=one.retry)
            if self.oracle.change(one.key.id, Verb.FAIL, request):
                expected[one.key] = self.oracle.rows[one.key.id].stored.status
        assert dict(await self.client.port.fail(failures, CALL_LIMIT_S)) == expected
        await self._checked([one.key.id for one in failures], f"fail {failures}")
        return [key.id for key in expected]

    async def reap(self, limit: int = EVERYTHING) -> list[int]:
        before = {row.id: row.stored for row in self.oracle.rows.values()}
        expected = self.oracle.reap(limit, self.now)
        got = await self.client.port.reap(limit, CALL_LIMIT_S)
        assert sorted(one.id for one in got) == sorted(expected)
        for one in got:
            row, was = self.oracle.rows[one.id], before[one.id]
            new, now = row.new, row.stored
            assert one == Recovered(
                one.id, new.tracking_id, new.event_type, now.status, now.retry_count, one.stale_s, was.lock_token or ""
            )
            assert was.locked_until is not None
            assert abs(one.stale_s - (self.now - was.locked_until).total_seconds()) < 1e-6
        return await self._checked(expected, "reap")

    async def redrive(
        self, ids: Sequence[int], cause: str = "", limit: int = EVERYTHING, spread_s: float = 0.0
    ) -> None:
        named = {self.oracle.rows[event_id].new.tracking_id: event_id for event_id in ids}
        expected = self.oracle.redrive(ids, cause, limit, spread_s, self.now)
        which = Filter(tuple(Status), tracking_ids=tuple(named))
        got = await self.client.admin.redrive(which, cause, limit, spread_s, CALL_LIMIT_S)
        assert [named[tracking_id] for tracking_id in got] == expected
        await self._checked(ids, f"redrive {ids}")

    async def check_all(self) -> None:
        rows = await self.client.admin.find(Filter(), EVERYTHING, CALL_LIMIT_S)
        assert [row.id for row in rows] == sorted(self.oracle.rows, reverse=True)
        for row in rows:
            agree(row, self.oracle.rows[row.id], "all rows")

    def _allowed(self, verb: Verb, keys: Sequence[ClaimKey], lease_s: float = 0.0) -> list[ClaimKey]:
        return [key for key in keys if self.oracle.change(key.id, verb, Request(self.now, key.token, lease_s))]

    def _claim(self, event_id: int, ask: ClaimAsk) -> Claim:
        """Return the claim on this event that the rule table requires."""
        row = self.oracle.rows[event_id]
        new = row.new
        return Claim(
            event_id, new.tracking_id, new.event_type, new.payload, ask.token,
            self.now + dt.timedelta(seconds=ask.lease_s), row.stored.retry_count + 1, row.stored.max_retries,
            new.aggregate_id, new.aggregate_type, new.metadata, new.priority, row.created_at,
        )  # fmt: skip

    async def _checked(self, ids: Sequence[int], what: str) -> list[int]:
        known = {self.oracle.rows[event_id].new.tracking_id for event_id in ids if event_id in self.oracle.rows}
        if known:
            rows = await self.client.admin.find(Filter(tracking_ids=tuple(known)), EVERYTHING, CALL_LIMIT_S)
            assert len(rows) == len(known)
            for row in rows:
                agree(row, self.oracle.rows[row.id], what)
        return list(ids)


@needs(Can.OUTBOX)
class EventTests(WithoutLeases):
    supplies: ClassVar[Mapping[str, Supply]] = {
        "pair": Pair.of,
        "other": Harness.another,
        **dict.fromkeys(("events", "one", "two"), lambda harness: harness.events()),
    }
