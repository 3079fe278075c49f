"""Detects, from another thread, whether an event loop still runs its callbacks.

The keeper needs it: it must not renew the leases of a process whose own event loop is blocked or closed.
"""

from __future__ import annotations

import asyncio

from fencehold.ports.clock import Clock


class LoopLiveness:
    """`ask` posts a callback to the loop; `silent_s` is how long the oldest one has waited to be called.

    A closed loop never answers.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Clock) -> None:
        self._loop = loop
        self._clock = clock
        self._asked_s: float | None = None

    def ask(self) -> None:
        if self._asked_s is not None:
            return
        self._asked_s = self._clock.now_s()
        try:
            self._loop.call_soon_threadsafe(self._answer)
        except RuntimeError:  # the loop is closed; never answered
            return

    def silent_s(self) -> float:
        asked_s = self._asked_s
        return 0.0 if asked_s is None else self._clock.now_s() - asked_s

    def _answer(self) -> None:
        self._asked_s = None
