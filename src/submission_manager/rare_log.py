"""Logs a frequent event in few lines: the first one at once, then a count at intervals."""

from __future__ import annotations

import asyncio
from typing import Any

from fencehold.ports.facts import FactSink


class RareLog:
    """Logs one event separately for each kind: the first at once, then one line per interval while more occur.

    Each line has the fields of the newest occurrence and, in the field named by `count`, how many there were since the
    line before. `close` logs what is left. For use on one event loop.
    """

    def __init__(self, facts: FactSink, event: str, count: str, every_s: float) -> None:
        self._facts, self._event, self._count, self._every_s = facts, event, count, every_s
        self._newest: dict[str, dict[str, Any]] = {}
        self._unlogged: dict[str, int] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}

    def add(self, kind: str, by: int = 1, **fields: Any) -> None:
        self._newest[kind] = fields
        self._unlogged[kind] = self._unlogged.get(kind, 0) + by
        if kind not in self._timers:
            self._summed_up(kind)

    def close(self) -> None:
        for timer in self._timers.values():
            timer.cancel()
        for kind in list(self._unlogged):
            self._fact(kind)
        self._timers.clear()

    def _summed_up(self, kind: str) -> None:
        if self._fact(kind):
            self._timers[kind] = asyncio.get_running_loop().call_later(self._every_s, self._summed_up, kind)
        else:
            del self._timers[kind]

    def _fact(self, kind: str) -> bool:
        """Log the count since the last line. Returns False, and logs nothing, if there was none."""
        count = self._unlogged.pop(kind, 0)
        fields = self._newest.pop(kind, {})
        if count:
            self._facts.fact(self._event, **{self._count: count}, **fields)
        return count > 0
