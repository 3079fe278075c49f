"""Logs frequent events in few lines: the first one at once, then a count at intervals."""

from __future__ import annotations

import asyncio
from typing import Any

from fencehold import FactSink


class RareLines:
    """Base of what is logged separately for each kind: at once, then one line per interval while more occur.

    `close` logs what is left. For use on one event loop.
    """

    def __init__(self, every_s: float) -> None:
        self._every_s = every_s
        self._timers: dict[str, asyncio.TimerHandle] = {}

    def _log(self, kind: str) -> bool:
        """Log what has occurred since the line before. Returns False, and logs nothing, if nothing has."""
        raise NotImplementedError

    def _occurred(self, kind: str) -> None:
        if kind not in self._timers:
            self._next(kind)

    def _next(self, kind: str) -> None:
        if self._log(kind):
            self._timers[kind] = asyncio.get_running_loop().call_later(self._every_s, self._next, kind)
        else:
            self._timers.pop(kind, None)

    def close(self) -> None:
        for kind, timer in self._timers.items():
            timer.cancel()
            self._log(kind)
        self._timers.clear()


class RareLog(RareLines):
    """Logs one event. Each line has the fields of the newest occurrence and, in the field named by `count`, how many
    there were since the line before.
    """

    def __init__(self, facts: FactSink, event: str, count: str, every_s: float) -> None:
        super().__init__(every_s)
        self._facts, self._event, self._count = facts, event, count
        self._newest: dict[str, dict[str, Any]] = {}
        self._unlogged: dict[str, int] = {}

    def add(self, kind: str, by: int = 1, **fields: Any) -> None:
        self._newest[kind] = fields
        self._unlogged[kind] = self._unlogged.get(kind, 0) + by
        self._occurred(kind)

    def _log(self, kind: str) -> bool:
        count = self._unlogged.pop(kind, 0)
        fields = self._newest.pop(kind, {})
        if count:
            self._facts.fact(self._event, **{self._count: count}, **fields)
        return count > 0
