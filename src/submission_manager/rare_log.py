"""What happens again and again, in few lines of the log: the first at once, then now and then how many."""

from __future__ import annotations

import asyncio
from typing import Any

from fencehold.ports.facts import FactSink


class RareLog:
    """One event, told kind by kind: until an interval had none of the kind. What is left is told at the end.

    Each line has the fields of the newest, and in `count` how many there were since the line before. For the loop that
    it is used in.
    """

    def __init__(self, facts: FactSink, event: str, count: str, every_s: float) -> None:
        self._facts, self._event, self._count, self._every_s = facts, event, count, every_s
        self._newest: dict[str, dict[str, Any]] = {}
        self._untold: dict[str, int] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}

    def add(self, kind: str, by: int = 1, **fields: Any) -> None:
        self._newest[kind] = fields
        self._untold[kind] = self._untold.get(kind, 0) + by
        if kind not in self._timers:
            self._summed_up(kind)

    def close(self) -> None:
        for timer in self._timers.values():
            timer.cancel()
        for kind in list(self._untold):
            self._fact(kind)
        self._timers.clear()

    def _summed_up(self, kind: str) -> None:
        if self._fact(kind):
            self._timers[kind] = asyncio.get_running_loop().call_later(self._every_s, self._summed_up, kind)
        else:
            del self._timers[kind]

    def _fact(self, kind: str) -> bool:
        """False: there was none since."""
        count = self._untold.pop(kind, 0)
        fields = self._newest.pop(kind, {})
        if count:
            self._facts.fact(self._event, **{self._count: count}, **fields)
        return count > 0
