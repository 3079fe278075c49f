"""What is due when, in the leader's memory: a copy of what the database says, and never more than a hint to it.

One min-heap of (due, sequence, intent) per lane and one map intent -> due. A heap entry the map no longer agrees with
is stale and skipped. Instants are whole microseconds of the database's clock: a million intents fit in 300 MB.
"""

from __future__ import annotations

import datetime as dt
import heapq
from collections.abc import Callable
from dataclasses import dataclass

EPOCH_START = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
MICROSECOND = dt.timedelta(microseconds=1)
STALE_MIN = 1024  # below this, sweeping out stale entries costs more than it frees


def micros(instant: dt.datetime) -> int:
    return (instant - EPOCH_START) // MICROSECOND


@dataclass(frozen=True, slots=True)
class Job:
    """One intent taken out to be attempted."""

    intent_id: str
    lane: str
    due_us: int


class Schedule:
    """Each intent is due at most once, and not at all while it is taken; observing it again changes nothing."""

    def __init__(self) -> None:
        self._due_us: dict[str, int] = {}
        self._heaps: dict[str, list[tuple[int, int, str]]] = {}
        self._taken: set[str] = set()
        self._sequence = 0
        self._entries = 0

    def __len__(self) -> int:
        return len(self._due_us)

    @property
    def entries(self) -> int:
        """Heap entries, stale ones included: what is kept in memory."""
        return self._entries

    def observe(self, intent_id: str, due_us: int | None, lane: str) -> None:
        """What the database said of this intent; of one that is taken, whoever took it will hear last."""
        if intent_id not in self._taken:
            self._put(intent_id, due_us, lane)

    def take(self, now_us: int, has_room: Callable[[str], bool]) -> Job | None:
        """The longest due of all lanes with room; it stays taken until it is settled."""
        lane = self._earliest(has_room)
        if lane is None or self._heaps[lane][0][0] > now_us:
            return None
        due_us, _, intent_id = self._pop(lane)
        del self._due_us[intent_id]
        self._taken.add(intent_id)
        return Job(intent_id, lane, due_us)

    def settle(self, job: Job, due_us: int | None) -> None:
        """No longer taken: due again then, or not at all."""
        self._taken.discard(job.intent_id)
        self._put(job.intent_id, due_us, job.lane)

    def next_due_us(self, has_room: Callable[[str], bool]) -> int | None:
        """When the next one of the lanes with room is due; None: none of them has any."""
        lane = self._earliest(has_room)
        return None if lane is None else self._heaps[lane][0][0]

    # --- parts ---

    def _put(self, intent_id: str, due_us: int | None, lane: str) -> None:
        if due_us is None:
            self._due_us.pop(intent_id, None)
        elif self._due_us.get(intent_id) != due_us:
            self._due_us[intent_id] = due_us
            self._sequence += 1
            heap = self._heaps.get(lane)
            if heap is None:
                heap = self._heaps[lane] = []
            heapq.heappush(heap, (due_us, self._sequence, intent_id))
            self._entries += 1
        if self._entries > 2 * len(self._due_us) + STALE_MIN:
            self._sweep()

    def _earliest(self, has_room: Callable[[str], bool]) -> str | None:
        for lane in list(self._heaps):
            self._drop_stale(lane)
        open_lanes = [lane for lane in self._heaps if has_room(lane)]
        return min(open_lanes, key=lambda lane: self._heaps[lane][0], default=None)

    def _drop_stale(self, lane: str) -> None:
        """An empty lane is forgotten: gateways come and go."""
        heap = self._heaps[lane]
        while heap and self._due_us.get(heap[0][2]) != heap[0][0]:
            heapq.heappop(heap)
            self._entries -= 1
        if not heap:
            del self._heaps[lane]

    def _pop(self, lane: str) -> tuple[int, int, str]:
        self._entries -= 1
        return heapq.heappop(self._heaps[lane])

    def _sweep(self) -> None:
        """Keep only what the map agrees with, once each."""
        self._entries = 0
        for lane, heap in list(self._heaps.items()):
            live = {entry[2]: entry for entry in heap if self._due_us.get(entry[2]) == entry[0]}
            kept = list(live.values())
            heapq.heapify(kept)
            self._entries += len(kept)
            if kept:
                self._heaps[lane] = kept
            else:
                del self._heaps[lane]
