"""Whether an event loop still turns, asked from another thread: a healthy keeper must not keep a dead worker alive."""

from __future__ import annotations

import asyncio

from fencehold.ports.clock import Clock


class LoopLiveness:
    """`silent_s` counts from the first question that got no answer; a closed loop is silent for ever."""

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
