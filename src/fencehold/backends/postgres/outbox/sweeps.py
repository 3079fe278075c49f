"""Decides when a claim is a sweep: a claim that looks at all due events, not only at those after the last claim."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from fencehold.ports.events import Claim, ClaimAsk, Key

EVERY_S = 1.0
SLOW_S = 0.01
PART = 20  # sweeps may take 1/20 of the time: dead rows make them slow, and they must not slow claims down


class Sweeps:
    """Decides for each claim whether it is a sweep. A claim that may miss no event always is one.

    Of a worker's claims these are sweeps:

    - the first of each second
    - one without completed events, after a claim that got fewer events than it asked for: such a worker is in no hurry
    - the first that may take a suspect (recovered twice in a row) after one was claimed: only a sweep finds suspects

    After a slow sweep no worker's claim is a sweep for 20 times as long as the slow one took.
    """

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._due_s = self._rests_until_s = 0.0
        self._is_drained = True
        self._had_suspect = False

    def is_due(self, ask: ClaimAsk, completed: Sequence[Key]) -> bool:
        if ask.in_order or not ask.may_miss:
            return True
        now_s = self._now_s()
        is_suspect_over = self._had_suspect and ask.suspects_max != 0
        is_time = now_s >= self._due_s or is_suspect_over or (self._is_drained and not completed)
        return is_time and now_s >= self._rests_until_s

    def swept(self, ask: ClaimAsk, began_s: float) -> None:
        took_s = self._now_s() - began_s
        self._due_s = began_s + EVERY_S
        if took_s > SLOW_S:
            self._rests_until_s = began_s + took_s * PART
        if ask.suspects_max != 0:
            self._had_suspect = False

    def claimed(self, ask: ClaimAsk, claims: Sequence[Claim]) -> None:
        """Remember what a claim returned, which decides whether the next one is a sweep. Call it after every claim."""
        self._is_drained = len(claims) < ask.limit
        self._had_suspect = self._had_suspect or any(claim.is_suspect for claim in claims)
