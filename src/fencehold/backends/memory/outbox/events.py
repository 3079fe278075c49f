"""Events in memory: shared by all stores of one process that use the same memory:// name and table."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Awaitable, Iterable, Iterator, Sequence
from itertools import islice

from fencehold.backends.absent import NoTables
from fencehold.backends.memory.hints import MemoryHints
from fencehold.backends.memory.outbox.shelf import CLAIMABLE, EventShelf, Kept
from fencehold.model.errors import ConfigurationError
from fencehold.model.outbox.new_events import NewEvent
from fencehold.model.outbox.rules import Request, Status, Verb, has_lapsed, is_recovered, is_suspect
from fencehold.ports.events import (
    Claim,
    ClaimAsk,
    ClaimKey,
    EventRow,
    Failure,
    Filter,
    Key,
    Recovered,
    Stats,
    Turn,
)
from fencehold.ports.fence import Ready

REDRIVABLE = (Status.DEAD_LETTER, Status.FAILED)
PURGEABLE = (Status.COMPLETED, Status.DEAD_LETTER)


class MemoryEventPort:
    def __init__(self, shelf: EventShelf) -> None:
        self._shelf = shelf

    async def add(self, events: Iterable[NewEvent], limit_s: float) -> list[str]:
        made = list(events)
        with self._shelf.lock:
            added = [event.tracking_id for event in made if self._shelf.add(event)]
        if added:
            self._shelf.notify()
        return added

    async def turn(self, completed: Sequence[Key], ask: ClaimAsk | None, limit_s: float) -> Turn:
        with self._shelf.lock:
            done = [key for key in completed if self._change(Verb.COMPLETE, key)]
            return Turn(done, self._claim(ask) if ask else [])

    async def renew(self, keys: Sequence[ClaimKey], lease_s: float, limit_s: float) -> dict[ClaimKey, dt.datetime]:
        with self._shelf.lock:
            rows = ((key, self._change(Verb.RENEW, key, lease_s=lease_s)) for key in keys)
            return {key: row.stored.locked_until for key, row in rows if row and row.stored.locked_until}

    async def fail(self, failures: Sequence[Failure], limit_s: float) -> list[tuple[ClaimKey, Status]]:
        with self._shelf.lock:
            rows = (
                (f.key, self._change(Verb.FAIL, f.key, error=f.error, delay_s=f.delay_s, retry=f.retry))
                for f in failures
            )
            return [(key, row.stored.status) for key, row in rows if row]

    async def release(self, keys: Sequence[ClaimKey], limit_s: float) -> list[ClaimKey]:
        with self._shelf.lock:
            released = [key for key in keys if self._change(Verb.RELEASE, key)]
        if released:
            self._shelf.notify()
        return released

    async def reap(self, limit: int, limit_s: float) -> list[Recovered]:
        shelf = self._shelf
        with shelf.lock:
            now = shelf.now()
            lapsed = sorted((row.stored.locked_until or now, row.id) for row in _lapsed(shelf, now))
            recovered = [self._recover(event_id, until, now) for until, event_id in lapsed[:limit]]
            shelf.reaper_ran_at, shelf.reaper_runs = now, shelf.reaper_runs + 1
        if any(one.status is Status.PENDING for one in recovered):
            shelf.notify()
        return recovered

    def _recover(self, event_id: int, until: dt.datetime, now: dt.datetime) -> Recovered:
        token = self._shelf.rows[event_id].stored.lock_token or ""
        error = f"lease expired: {token} held it until {until} and neither finished nor renewed"
        row = self._shelf.apply(event_id, Verb.REAP, Request(now, error=error))
        assert row is not None, "lapsed, under the lock"
        stored, new = row.stored, row.new
        stale_s = (now - until).total_seconds()
        return Recovered(event_id, new.tracking_id, new.event_type, stored.status, stored.retry_count, stale_s, token)

    def _claim(self, ask: ClaimAsk) -> list[Claim]:
        chosen = list(islice(self._shelf.candidates(ask), ask.limit))
        request = Request(self._shelf.now(), ask.token, ask.lease_s)
        recovered = {row.id for row in chosen if is_recovered(row.stored)}
        rows = (self._shelf.apply(row.id, Verb.CLAIM, request) for row in chosen)
        return [_claim(row, ask.token, row.id in recovered) for row in rows if row]

    def _change(
        self, verb: Verb, key: Key, lease_s: float = 0.0, error: str = "", delay_s: float = 0.0, retry: bool = True
    ) -> Kept | None:
        request = Request(self._shelf.now(), key.token, lease_s, error, delay_s, retry)
        return self._shelf.apply(key.id, verb, request)


class MemoryEventAdmin:
    def __init__(self, shelf: EventShelf) -> None:
        self._shelf = shelf

    async def stats(self, limit_s: float, whole: bool = True) -> Stats:
        shelf = self._shelf
        with shelf.lock:
            now = shelf.now()
            count = Counter(row.stored.status for row in shelf.rows.values())
            due = [row.stored.due_at for row in shelf.unfinished.values() if row.stored.status in CLAIMABLE]
            age_s = max(0.0, (now - min(due, default=now)).total_seconds())
            ran_s_ago = (now - shelf.reaper_ran_at).total_seconds() if shelf.reaper_ran_at else None
            return Stats(
                count[Status.PENDING], count[Status.PROCESSING], count[Status.COMPLETED] if whole else 0,
                count[Status.FAILED], count[Status.DEAD_LETTER], age_s, len(list(_lapsed(shelf, now))), ran_s_ago,
                shelf.reaper_runs,
            )  # fmt: skip

    async def find(self, which: Filter, limit: int, limit_s: float) -> list[EventRow]:
        with self._shelf.lock:
            now = self._shelf.now()
            newest_first = reversed(list(self._chosen(which)))
            return [_event_row(row, now) for row in islice(newest_first, limit)]

    async def redrive(
        self, which: Filter, root_cause: str, limit: int, spread_s: float, limit_s: float, dry_run: bool = False
    ) -> list[str]:
        shelf = self._shelf
        with shelf.lock:
            now = shelf.now()
            chosen = [row for row in self._chosen(which) if row.stored.status in REDRIVABLE][:limit]
            for place, row in enumerate([] if dry_run else chosen):
                request = Request(now, delay_s=place * spread_s, root_cause=root_cause)
                shelf.apply(row.id, Verb.REDRIVE, request)
        if chosen and not dry_run:
            shelf.notify()
        return [row.new.tracking_id for row in chosen]

    async def purge(self, which: Filter, limit: int, limit_s: float, dry_run: bool = False) -> int:
        """Remove finished events that match `which`, up to `limit`, and return how many; a dry run only counts them.

        Dead letters are removed only if `which` names their status.
        """
        named = which.statuses or (Status.COMPLETED,)
        with self._shelf.lock:
            finished = (row for row in self._chosen(which) if row.stored.status in PURGEABLE)
            chosen = [row for row in finished if row.stored.status in named][:limit]
            for row in [] if dry_run else chosen:
                self._shelf.remove(row)
                gone = row.new.tracking_id
                self._shelf.consumed = {(one, by) for one, by in self._shelf.consumed if one != gone}
        return len(chosen)

    def _chosen(self, which: Filter) -> Iterator[Kept]:
        older_than_s = which.older_than_s
        now = self._shelf.now()
        for row in self._shelf.rows.values():
            age_s = (now - (row.stored.processed_at or row.created_at)).total_seconds()
            if (
                (not which.statuses or row.stored.status in which.statuses)
                and (not which.event_types or row.new.event_type in which.event_types)
                and (not which.tracking_ids or row.new.tracking_id in which.tracking_ids)
                and (older_than_s is None or age_s > older_than_s)
            ):
                yield row


class MemoryEventsInTx:
    """The verbs that work in a caller's transaction, which memory does not have.

    `add` always raises ConfigurationError (bad_connection); `first_time` works at once if no connection is given.
    """

    def __init__(self, shelf: EventShelf) -> None:
        self._shelf = shelf

    def add(self, target: object, events: Sequence[NewEvent], outbox_id: str) -> Awaitable[list[str]]:
        raise no_transactions()

    async def identity(self, limit_s: float) -> str:
        return ""

    def first_time(self, tracking_id: str, consumer_id: str, target: object, outbox_id: str) -> Awaitable[bool]:
        """Remember at once that the consumer has seen the event. Return whether it had not seen it before.

        Raises ConfigurationError (bad_connection) if a `target` is given, because memory has no transaction to join.
        """
        if target is not None:
            raise no_transactions()
        with self._shelf.lock:
            is_first = (tracking_id, consumer_id) not in self._shelf.consumed
            self._shelf.consumed.add((tracking_id, consumer_id))
            return Ready(is_first)


class MemoryEvents:
    def __init__(self, shelf: EventShelf) -> None:
        self.schema = NoTables("the memory store")
        self.port = MemoryEventPort(shelf)
        self.in_tx = MemoryEventsInTx(shelf)
        self.admin = MemoryEventAdmin(shelf)
        self.hints = MemoryHints(shelf.relays)

    async def close(self) -> None:
        self.hints.close()


def no_transactions() -> ConfigurationError:
    return ConfigurationError(
        "The memory store has no transactions that an event could be added in; nothing was written.",
        hint="Leave tx out, or use sqlite:// or postgresql://.",
        code="bad_connection",
    )


def _lapsed(shelf: EventShelf, now: dt.datetime) -> Iterator[Kept]:
    held = (row for row in shelf.unfinished.values() if row.stored.status is Status.PROCESSING)
    return (row for row in held if has_lapsed(row.stored, Request(now)))


def _claim(row: Kept, token: str, recovered: bool) -> Claim:
    new, stored = row.new, row.stored
    return Claim(
        row.id, new.tracking_id, new.event_type, new.payload, token, stored.locked_until, stored.retry_count + 1,
        stored.max_retries, new.aggregate_id, new.aggregate_type, new.metadata, new.priority, row.created_at,
        recovered=recovered, is_suspect=is_suspect(recovered, stored.retry_count, stored.recoveries),
    )  # fmt: skip


def _event_row(row: Kept, now: dt.datetime) -> EventRow:
    new, s = row.new, row.stored
    return EventRow(
        row.id, new.tracking_id, new.event_type, new.aggregate_id, new.aggregate_type, new.payload, new.metadata,
        s.status, new.priority, row.created_at, s.due_at, s.processed_at, s.retry_count, s.max_retries, s.locked_until,
        s.lock_token, s.last_error, s.root_cause, waits_s=(s.due_at - now).total_seconds(),
        held_s=(s.locked_until - now).total_seconds() if s.locked_until else None,
    )  # fmt: skip
