"""The rule table as an oracle: what an outbox must answer, computed from model/outbox/events.py alone."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass, replace

from fencehold.model.outbox.events import Request, Status, Stored, Verb, apply
from fencehold.model.outbox.new_events import NewEvent
from fencehold.ports.events import ClaimAsk, ClaimKey, EventRow
from fencehold.testing.conformance.oracle import RuleOracle

SOME_ERROR = "(the store's own words)"
CLAIMABLE = (Status.PENDING, Status.FAILED)


@dataclass
class Expected:
    """One event as the rules require it."""

    id: int
    new: NewEvent
    created_at: dt.datetime
    stored: Stored

    @property
    def key(self) -> ClaimKey:
        """The key of the present claim; if there is none, a key with the token "nobody"."""
        return ClaimKey(self.id, self.stored.lock_token or "nobody", self.new.tracking_id)


class EventOracle(RuleOracle):
    """Events as the rules require them."""

    table = "outbox"

    def __init__(self, applied: set[str] | None = None) -> None:
        super().__init__(applied)
        self.rows: dict[int, Expected] = {}

    def add(self, event_id: int, new: NewEvent, now: dt.datetime) -> None:
        due_at = new.not_before or now + dt.timedelta(seconds=new.delay_s)
        stored = Stored(Status.PENDING, due_at, max_retries=new.max_retries)
        self.rows[event_id] = Expected(event_id, new, now, stored)

    def change(self, event_id: int, verb: Verb, request: Request) -> bool:
        """Apply the verb by the table; return whether the table allows it."""
        row = self.rows.get(event_id)
        if row is None:
            return False
        rule, stored = apply(row.stored, verb, request) or (None, row.stored)
        self.decided(event_id, rule, row.stored.status, verb)
        row.stored = stored
        return rule is not None

    def claim(self, ask: ClaimAsk, now: dt.datetime) -> list[int]:
        """The ids that must be claimed, in this order."""
        request = Request(now, ask.token, ask.lease_s)
        candidates = [row for row in self.rows.values() if self._may_be_claimed(row, ask)]
        urgent = sorted(candidates, key=lambda row: (-row.new.priority, row.stored.due_at, row.id))
        claimed: list[int] = []
        for row in urgent:
            if len(claimed) < ask.limit and self.change(row.id, Verb.CLAIM, request):
                claimed.append(row.id)
        return claimed

    def reap(self, limit: int, now: dt.datetime) -> list[int]:
        """The ids that must be recovered, the longest lapsed first."""
        never = now + dt.timedelta(days=36_500)
        lapsed_first = sorted(self.rows.values(), key=lambda row: (row.stored.locked_until or never, row.id))
        recovered: list[int] = []
        for row in lapsed_first:
            if len(recovered) < limit and self.change(row.id, Verb.REAP, Request(now, error=SOME_ERROR)):
                recovered.append(row.id)
        return recovered

    def redrive(self, ids: Sequence[int], cause: str, limit: int, spread_s: float, now: dt.datetime) -> list[int]:
        """Return those of the ids that must be PENDING again, the oldest first."""
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
        """Whether another event of its aggregate is held, or is unfinished and older."""
        mine = (row.new.aggregate_type, row.new.aggregate_id)
        others = (o for o in self.rows.values() if (o.new.aggregate_type, o.new.aggregate_id) == mine and o is not row)
        return any(
            other.stored.status is Status.PROCESSING or (other.stored.status in CLAIMABLE and other.id < row.id)
            for other in others
        )


def agree(got: EventRow, expected: Expected, what: str) -> None:
    """Fail unless the store's row is the row that the table requires."""
    stored = expected.stored
    if stored.last_error == SOME_ERROR:
        assert got.last_error, f"{what}: a recovered event says nothing of why"
        stored = replace(stored, last_error=got.last_error)
    seen = Stored(
        got.status, got.due_at, got.retry_count, got.max_retries, got.locked_until, got.lock_token, got.last_error,
        got.processed_at, got.root_cause, stored.recoveries,
    )  # fmt: skip
    assert seen == stored, f"{what}:\n  the store says {seen}\n  the table says {stored}"
    new = expected.new
    assert (got.id, got.tracking_id, got.event_type, got.payload, got.metadata, got.priority) == (
        expected.id, new.tracking_id, new.event_type, new.payload, new.metadata, new.priority,
    ), what  # fmt: skip
    assert (got.aggregate_type, got.aggregate_id) == (new.aggregate_type, new.aggregate_id), what
    assert got.created_at == expected.created_at, what
