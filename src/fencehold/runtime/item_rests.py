"""Items a processor leaves alone for a while: one whose handler fails again and again must not be all it does."""

from __future__ import annotations

import random

from fencehold.model.outbox_settings import Backoff
from fencehold.ports.clock import Clock

REST_S_MAX = 60.0
RESTS_MAX = 10_000


class Rests:
    """In this process only, and forgotten with it. The pause doubles with each failure, up to a minute."""

    def __init__(self, base_s: float, clock: Clock) -> None:
        self._base_s = base_s
        self._backoff = Backoff(base_s, max(base_s, REST_S_MAX))
        self._clock = clock
        self._rng = random.Random()
        self._until_s: dict[str, float] = {}
        self._failures: dict[str, int] = {}

    def ids(self) -> list[str]:
        """Of those that rest now."""
        now_s = self._clock.now_s()
        self._until_s = {item_id: until_s for item_id, until_s in self._until_s.items() if until_s > now_s}
        return list(self._until_s)

    def failed(self, item_id: str) -> float:
        """How long it rests now."""
        failures = self._failures.pop(item_id, 0) + 1
        self._failures[item_id] = failures  # the newest last
        if len(self._failures) > RESTS_MAX:
            self._failures.pop(next(iter(self._failures)))
        rest_s = self._backoff.delay_s(failures, self._rng)
        self._rest(item_id, rest_s)
        return rest_s

    def done(self, item_id: str, has_moved: bool) -> None:
        """One whose handler found nothing to do yet rests until the next poll."""
        self._failures.pop(item_id, None)
        self._until_s.pop(item_id, None)
        if not has_moved:
            self._rest(item_id, self._base_s)

    def _rest(self, item_id: str, rest_s: float) -> None:
        self._until_s.pop(item_id, None)
        self._until_s[item_id] = self._clock.now_s() + rest_s
        if len(self._until_s) > RESTS_MAX:
            self._until_s.pop(next(iter(self._until_s)))  # the one that began to rest first
