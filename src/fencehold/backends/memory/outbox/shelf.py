"""The events of one outbox in memory, and the methods that change them by the rule table."""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from fencehold.model.outbox.new_events import NewEvent
from fencehold.model.outbox.rules import Request, Status, Stored, Verb, apply, is_recovered, is_suspect
from fencehold.ports.events import ClaimAsk
from fencehold.ports.wakeup import ADDED, Hint

CLAIMABLE = (Status.PENDING, Status.FAILED)
UNFINISHED = (*CLAIMABLE, Status.PROCESSING)

Aggregate = tuple[str | None, str]


@dataclass
class Kept:
    """One event as the store keeps it: what was added, and the columns that the rules read and write."""

    id: int
    new: NewEvent
    created_at: dt.datetime
    stored: Stored

    @property
    def aggregate(self) -> Aggregate | None:
        return None if self.new.aggregate_id is None else (self.new.aggregate_type, self.new.aggregate_id)


@dataclass
class EventShelf:
    """The events of one outbox in memory, in the order of their ids. One lock makes every verb atomic.

    `relays`: the functions to call when events were added. `fired`: the ids of the rules that were applied so far.
    """

    now: Callable[[], dt.datetime]
    rows: dict[int, Kept] = field(default_factory=dict)
    unfinished: dict[int, Kept] = field(default_factory=dict)  # finished events must not slow the next claim
    by_tracking_id: dict[str, Kept] = field(default_factory=dict)
    consumed: set[tuple[str, str]] = field(default_factory=set)
    reaper_ran_at: dt.datetime | None = None
    reaper_runs: int = 0
    last_id: int = 0
    relays: list[Hint] = field(default_factory=list)
    fired: list[str] = field(default_factory=list)
    lock: threading.RLock = field(default_factory=threading.RLock)

    def add(self, event: NewEvent) -> bool:
        """Add the event, unless one with its tracking id is there. Return whether it was added."""
        if event.tracking_id in self.by_tracking_id:
            return False
        now = self.now()
        due_at = event.not_before or now + dt.timedelta(seconds=event.delay_s)
        self.last_id += 1
        row = Kept(self.last_id, event, now, Stored(Status.PENDING, due_at, max_retries=event.max_retries))
        self.rows[row.id] = self.unfinished[row.id] = self.by_tracking_id[event.tracking_id] = row
        return True

    def apply(self, event_id: int, verb: Verb, request: Request) -> Kept | None:
        """Change the event as the rule table says. Return the event after the change.

        None if there is no such event, or if the table refuses the verb.
        """
        row = self.rows.get(event_id)
        outcome = apply(row.stored, verb, request) if row else None
        if row is None or outcome is None:
            return None
        rule, row.stored = outcome
        self.fired.append(rule.id)
        if row.stored.status in UNFINISHED:
            self.unfinished[row.id] = row
        else:
            self.unfinished.pop(row.id, None)
        return row

    def remove(self, row: Kept) -> None:
        """Remove an event that is finished, and so is not in `unfinished`."""
        del self.rows[row.id], self.by_tracking_id[row.new.tracking_id]

    def candidates(self, ask: ClaimAsk) -> Iterator[Kept]:
        """Return the events that a claim may take now, the most urgent first."""
        now = self.now()
        free = [
            row
            for row in self.unfinished.values()
            if row.stored.status in CLAIMABLE
            and row.stored.due_at <= now
            and (ask.event_types is None or row.new.event_type in ask.event_types)
        ]
        free.sort(key=lambda row: (-row.new.priority, row.stored.due_at, row.id))
        chosen = self._in_order(free) if ask.in_order else iter(free)
        return chosen if ask.suspects_max is None else _few_suspects(chosen, ask.suspects_max)

    def _in_order(self, free: Iterable[Kept]) -> Iterator[Kept]:
        held = {row.aggregate for row in self.unfinished.values() if row.stored.status is Status.PROCESSING}
        oldest: dict[Aggregate, int] = {}
        for row in self.unfinished.values():
            if row.aggregate is not None:
                oldest[row.aggregate] = min(row.id, oldest.get(row.aggregate, row.id))
        for row in free:
            if row.aggregate is None or (row.aggregate not in held and oldest[row.aggregate] == row.id):
                yield row

    def notify(self) -> None:
        for relay in list(self.relays):
            relay(ADDED, "")


def _few_suspects(rows: Iterator[Kept], suspects_max: int) -> Iterator[Kept]:
    left = suspects_max
    for row in rows:
        suspect = is_suspect(is_recovered(row.stored), row.stored.retry_count, row.stored.recoveries)
        left -= suspect
        if left >= 0 or not suspect:
            yield row
