"""The leader's schedule in memory: when each intent is due, and when its deadline passes.

It is a copy, and only a hint: the database decides. There is one lane per gateway (lane.py decides which intent is
next), one heap of deadlines over all lanes, and one map from intent to its entry. A heap entry that is not in the map
is stale and skipped. Instants are whole microseconds of the database's clock: a million intents fit in 450 MB.
"""

from __future__ import annotations

import datetime as dt
import heapq
from collections.abc import Callable
from dataclasses import dataclass

from submission_manager.schedule.lane import Entry, Lane

EPOCH_START = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
MICROSECOND = dt.timedelta(microseconds=1)
STALE_MIN = 1024  # with fewer stale entries, removing them costs more than it saves
VIRTUAL_US = 60_000_000

#: How many attempts are under way in a lane; None: there is no room for another.
Load = Callable[[str], int | None]
#: How long an attempt in a lane is expected to take; 0: unknown.
Expected = Callable[[str], int]


def unknown(lane: str) -> int:
    return 0


def micros(instant: dt.datetime) -> int:
    return (instant - EPOCH_START) // MICROSECOND


def micros_or_none(instant: dt.datetime | None) -> int | None:
    return None if instant is None else micros(instant)


@dataclass(frozen=True, slots=True)
class Job:
    """One intent taken out to be attempted, or to be ended because its deadline has passed."""

    intent_id: str
    lane: str
    due_us: int
    deadline_us: int | None = None
    priority: int = 0


class Schedule:
    """Which intent is due when, in memory. Each intent is in it at most once, and not at all while it is taken.

    Observing the same values again changes nothing.
    """

    def __init__(self, virtual_us: int = VIRTUAL_US) -> None:
        self._virtual_us = virtual_us
        self._live: dict[str, Entry] = {}
        self._lanes: dict[str, Lane] = {}
        self._deadlines: list[tuple[int, str]] = []  # holds every live intent with a deadline, at least once
        self._taken: set[str] = set()
        self._sequence = 0
        self._swept_at = 0

    def __len__(self) -> int:
        return len(self._live)

    def observe(
        self, intent_id: str, due_us: int | None, lane: str,
        *, deadline_us: int | None = None, priority: int = 0, now_us: int = 0,
    ) -> None:  # fmt: skip
        """Store what was read of this intent.

        Does nothing while it is taken: the code that took it gets newer values.
        """
        if intent_id in self._taken:
            return
        if due_us is None:
            self._live.pop(intent_id, None)
            return
        known = self._live.get(intent_id)
        if known is None or known.due_us != due_us:
            self._put(Entry(due_us, self._next(), intent_id, lane, due_us, deadline_us, priority), deadline_us, now_us)

    def take(self, now_us: int, load: Load, expected_us: Expected = unknown) -> Job | None:
        """Take and return the next intent of the lane with the fewest attempts under way; None if none can start now.

        The intent stays taken until `settle` is called for it.
        """
        best: tuple[tuple[int, int, Entry], Lane] | None = None
        for name, lane in self._open_lanes():
            under_way = load(name)
            entry = None if under_way is None else lane.head(now_us, expected_us(name))
            if under_way is not None and entry is not None:
                turn = (under_way, -entry.priority, entry), lane
                best = turn if best is None or turn[0] < best[0] else best
        if best is None:
            return None
        (_, _, chosen), lane = best
        lane.take(chosen)
        return self._taken_out(chosen)

    def settle(self, job: Job, due_us: int | None, *, expires_us: int | None = None) -> None:
        """Put the taken intent back, due at `due_us`; None: remove the intent for good.

        `expires_us`: do not try to end the intent by its deadline before this time.
        """
        self._taken.discard(job.intent_id)
        if due_us is not None:
            until_us = job.deadline_us
            entry = Entry(due_us, self._next(), job.intent_id, job.lane, due_us, until_us, job.priority)
            self._put(entry, until_us if until_us is None else max(until_us, expires_us or 0), 0)

    def next_due_us(self, load: Load) -> int | None:
        """Return when the next intent is due in the lanes that have room; None if there is none."""
        dues = [lane.next_due_us() for name, lane in self._open_lanes() if load(name) is not None]
        return min((due for due in dues if due is not None), default=None)

    # --- deadlines ---

    def expired(self, now_us: int, limit: int) -> list[Job]:
        """Take and return at most `limit` intents whose deadline has passed, the earliest first, from all lanes.

        Intents that are taken already are left out: the code that took them checks the deadline.
        """
        jobs: list[Job] = []
        while self._deadlines and self._deadlines[0][0] <= now_us and len(jobs) < limit:
            _, intent_id = heapq.heappop(self._deadlines)
            entry = self._live.get(intent_id)
            if entry is not None:
                jobs.append(self._taken_out(entry))
        return jobs

    def next_deadline_us(self) -> int | None:
        while self._deadlines and self._deadlines[0][1] not in self._live:
            heapq.heappop(self._deadlines)
        return self._deadlines[0][0] if self._deadlines else None

    # --- parts ---

    def _next(self) -> int:
        self._sequence += 1
        return self._sequence

    def _put(self, entry: Entry, expires_us: int | None, now_us: int) -> None:
        lane = self._lanes.get(entry.lane)
        if lane is None:
            lane = self._lanes[entry.lane] = Lane(self._live, self._virtual_us)
        lane.put(entry, now_us)
        if expires_us is not None:
            heapq.heappush(self._deadlines, (expires_us, entry.intent_id))
        if self._sequence - self._swept_at > len(self._live) + STALE_MIN:
            self._sweep()

    def _taken_out(self, entry: Entry) -> Job:
        del self._live[entry.intent_id]
        self._taken.add(entry.intent_id)
        return Job(entry.intent_id, entry.lane, entry.due_us, entry.deadline_us, entry.priority)

    def _open_lanes(self) -> list[tuple[str, Lane]]:
        """Return all lanes that are not empty. Removes the empty lanes, because gateways come and go."""
        for name in [name for name, lane in self._lanes.items() if lane.is_empty()]:
            del self._lanes[name]
        return list(self._lanes.items())

    def _sweep(self) -> None:
        """Remove all stale entries, and keep each deadline once."""
        self._swept_at = self._sequence
        for lane in self._lanes.values():
            lane.sweep()
        kept: dict[str, int] = {}
        for at_us, intent_id in self._deadlines:
            if intent_id in self._live:
                kept[intent_id] = max(at_us, kept.get(intent_id, at_us))
        self._deadlines = [(at_us, intent_id) for intent_id, at_us in kept.items()]
        heapq.heapify(self._deadlines)
