"""Remembers the items that a processor skips for a while, so that items whose handlers fail do not block others.

Such an item rests. A statement gets the ids that it must skip, and can get about one page of them. If more items rest,
each statement looks only at the items that came into their state within one stretch of time, and gets the ids that rest
in that stretch.
"""

from __future__ import annotations

import datetime as dt
import heapq
import random
from bisect import bisect_left, insort

from fencehold.model.outbox.settings import Backoff
from fencehold.ports.clock import Clock
from fencehold.ports.items import Stretch

REST_S_MAX = 60.0
PAGE = 10_000  # ids that one statement is told to skip, unless more came into their state at one instant
RESTS_MAX = 1_000_000  # about 300 MB


class Rests:
    """The items that rest, in this process only.

    The pause doubles with each failure of an item's handler, up to a minute.
    """

    def __init__(self, base_s: float, clock: Clock) -> None:
        self._base_s = base_s
        self._backoff = Backoff(base_s, max(base_s, REST_S_MAX))
        self._clock = clock
        self._rng = random.Random()
        self._resting: dict[str, tuple[float, dt.datetime]] = {}  # until when, and since when in its state
        #: A heap. The entry of a rest that ended in another way stays until its time.
        self._by_end: list[tuple[float, str]] = []
        self._by_time: list[tuple[dt.datetime, str]] = []  # sorted
        self._failures: dict[str, int] = {}

    def stretches(self) -> list[Stretch]:
        """Divide all of time into stretches, the oldest first, so that about PAGE resting items belong to each.

        An item belongs to the stretch in which it came into its state.
        """
        self._wake_up()
        cuts = list(dict.fromkeys(self._by_time[place][0] for place in range(PAGE, len(self._by_time), PAGE)))
        return [Stretch(since, before) for since, before in zip([None, *cuts], [*cuts, None], strict=True)]

    def ids(self, stretch: Stretch) -> list[str]:
        """Return the ids of the items that rest now and came into their state within this stretch of time."""
        self._wake_up()
        first = bisect_left(self._by_time, (stretch.since,)) if stretch.since is not None else 0
        end = bisect_left(self._by_time, (stretch.before,)) if stretch.before is not None else None
        return [item_id for _, item_id in self._by_time[first:end]]

    def failed(self, item_id: str, since: dt.datetime) -> float:
        """Record that the item's handler failed, so that the item rests. Returns for how many seconds it rests.

        `since`: when the item came into its state.
        """
        failures = self._failures.pop(item_id, 0) + 1
        self._failures[item_id] = failures  # the newest last
        if len(self._failures) > RESTS_MAX:
            self._failures.pop(next(iter(self._failures)))
        rest_s = self._backoff.delay_s(failures, self._rng)
        self._rest(item_id, since, rest_s)
        return rest_s

    def done(self, item_id: str, since: dt.datetime, has_moved: bool) -> None:
        """Record that the item's handler returned. If the item is still in its state, it rests until the next poll."""
        self._failures.pop(item_id, None)
        self._end(item_id)
        if not has_moved:
            self._rest(item_id, since, self._base_s)

    def _rest(self, item_id: str, since: dt.datetime, rest_s: float) -> None:
        self._end(item_id)
        until_s = self._clock.now_s() + rest_s
        self._resting[item_id] = (until_s, since)
        heapq.heappush(self._by_end, (until_s, item_id))
        insort(self._by_time, (since, item_id))
        if len(self._resting) > RESTS_MAX:
            self._end(next(iter(self._resting)))  # the one that began to rest first

    def _end(self, item_id: str) -> None:
        if rest := self._resting.pop(item_id, None):
            del self._by_time[bisect_left(self._by_time, (rest[1], item_id))]

    def _wake_up(self) -> None:
        now_s = self._clock.now_s()
        while self._by_end and self._by_end[0][0] <= now_s:
            until_s, item_id = heapq.heappop(self._by_end)
            if item_id in self._resting and self._resting[item_id][0] == until_s:
                self._end(item_id)
