"""One gateway's lane: which of the intents that are due is next.

1. The higher priority first.
2. Within one priority: the earliest deadline first; after them those without a deadline, the longest due first.
3. But no intent without a deadline starves: it has a virtual deadline, a fixed time after it was due. One of every
   SHARE starts goes to the earliest virtual deadline, of whatever priority, if that is before the deadline of the
   intent that would be next otherwise. Those without a deadline never take more than this share from those with one.
4. An intent that cannot be expected to end before its deadline any more is skipped: it would delay others in vain.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from submission_manager.model.call_times import latest_start_us

SHARE = 4


class Entry(NamedTuple):
    """One intent in a heap of a lane. `key_us` orders the heap: the due time until it is due, then the deadline.

    An intent without a deadline has a virtual one, as the module says.
    """

    key_us: int
    sequence: int
    intent_id: str
    lane: str
    due_us: int
    deadline_us: int | None
    priority: int


@dataclass(slots=True)
class Level:
    """The intents of one priority that are due: those with a deadline, and those without."""

    dated: list[Entry] = field(default_factory=list)
    undated: list[Entry] = field(default_factory=list)

    @property
    def first(self) -> Entry | None:
        return next((heap[0] for heap in (self.dated, self.undated) if heap), None)


class Lane:
    """The intents that wait for one gateway, in heaps.

    `live` holds the valid entry of each intent: any other entry in a heap is stale and skipped.
    """

    def __init__(self, live: dict[str, Entry], virtual_us: int) -> None:
        self._live = live
        self._virtual_us = virtual_us
        self._waiting: list[Entry] = []
        self._levels: dict[int, Level] = {}
        self._starts_since_share = 0

    def put(self, entry: Entry, now_us: int) -> None:
        self._live[entry.intent_id] = entry
        if entry.due_us <= now_us:
            self._ripen(entry)
        else:
            heapq.heappush(self._waiting, entry)

    def head(self, now_us: int, expected_us: int = 0) -> Entry | None:
        """Return the entry whose attempt is to start next; None if nothing is due.

        `expected_us`: how long an attempt is expected to take. An intent that is past its deadline, or would be when
        its attempt ends, is skipped: it is to be ended instead.
        """
        self._drop_stale(now_us, expected_us)
        while self._waiting and self._waiting[0].due_us <= now_us:
            self._ripen(heapq.heappop(self._waiting))
            self._drop_stale(now_us, expected_us)
        first = next((self._levels[one].first for one in sorted(self._levels, reverse=True)), None)
        if first is None or self._starts_since_share < SHARE - 1:
            return first
        patient = self._longest_waiting()
        return patient if patient is not None and patient < first else first

    def take(self, entry: Entry) -> None:
        """Remove the entry that `head` returned, because its attempt starts."""
        level = self._levels[entry.priority]
        is_share = entry is not next(self._levels[one].first for one in sorted(self._levels, reverse=True))
        self._starts_since_share = 0 if is_share else self._starts_since_share + 1
        heapq.heappop(level.undated if entry.deadline_us is None else level.dated)

    def next_due_us(self) -> int | None:
        """Return the earliest due time of any entry; in the past if one is due already. None if the lane is empty."""
        self._drop_stale(None)
        heads = [level.first for level in self._levels.values()] + self._waiting[:1]
        return min((entry.due_us for entry in heads if entry is not None), default=None)

    def is_empty(self) -> bool:
        self._drop_stale(None)
        return not self._waiting and not self._levels

    def sweep(self) -> None:
        """Remove all stale entries: those whose intent has a newer entry or none."""
        self._waiting = self._kept(self._waiting)
        for level in self._levels.values():
            level.dated, level.undated = self._kept(level.dated), self._kept(level.undated)

    # --- parts ---

    def _ripen(self, entry: Entry) -> None:
        """Order this entry by its deadline from now on, because it is due."""
        _, sequence, intent_id, lane, due_us, deadline_us, priority = entry
        level = self._levels.get(priority)
        if level is None:
            level = self._levels[priority] = Level()
        key_us = due_us + self._virtual_us if deadline_us is None else deadline_us
        ripe = Entry(key_us, sequence, intent_id, lane, due_us, deadline_us, priority)
        self._live[intent_id] = ripe
        heapq.heappush(level.undated if deadline_us is None else level.dated, ripe)

    def _longest_waiting(self) -> Entry | None:
        return min((level.undated[0] for level in self._levels.values() if level.undated), default=None)

    def _drop_stale(self, now_us: int | None, expected_us: int = 0) -> None:
        """Drop stale entries from the heads of the heaps, so that each head is valid.

        With `now_us`, entries that are too late to start are dropped too.
        """
        _drop_heads(self._waiting, self._live, None)
        for priority, level in list(self._levels.items()):
            _drop_heads(level.dated, self._live, now_us, expected_us)
            _drop_heads(level.undated, self._live, None)
            if level.first is None:
                del self._levels[priority]

    def _kept(self, heap: list[Entry]) -> list[Entry]:
        kept = [entry for entry in heap if self._live.get(entry.intent_id) is entry]
        heapq.heapify(kept)
        return kept


def _drop_heads(heap: list[Entry], live: Mapping[str, Entry], now_us: int | None, expected_us: int = 0) -> None:
    while heap and (live.get(heap[0].intent_id) is not heap[0] or _is_too_late(heap[0], now_us, expected_us)):
        heapq.heappop(heap)


def _is_too_late(entry: Entry, now_us: int | None, expected_us: int) -> bool:
    if now_us is None or entry.deadline_us is None:
        return False
    return now_us >= latest_start_us(entry.due_us, entry.deadline_us, expected_us)
