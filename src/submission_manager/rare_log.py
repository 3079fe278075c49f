"""Logs frequent events in few lines: the first one at once, then a count at intervals."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from typing import Any

from fencehold import FactSink


class RareLog:
    """Logs one event in few lines, for each kind of it apart: at once, then one line per interval while more occur.

    Each line has the counts since the line before, and the other fields of the newest occurrence. `close` logs what is
    left. For use on one event loop.
    """

    def __init__(self, facts: FactSink, event: str, every_s: float) -> None:
        self._facts, self._event, self._every_s = facts, event, every_s
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._counts: dict[str, Counter[str]] = {}
        self._newest: dict[str, dict[str, Any]] = {}

    def add(self, kind: str, counts: Mapping[str, int], **fields: Any) -> None:
        self._newest[kind] = fields
        self._counts.setdefault(kind, Counter()).update(counts)
        if kind not in self._timers:
            self._next(kind)

    def count(self, kind: str, counts: Mapping[str, int]) -> None:
        """Add to the counts of this kind's next line; do nothing if no interval of this kind is running.

        The line itself is logged only if `add` is called in its interval.
        """
        if kind in self._timers:
            self._counts.setdefault(kind, Counter()).update(counts)

    def close(self) -> None:
        for kind, timer in self._timers.items():
            timer.cancel()
            self._log(kind)
        self._timers.clear()

    def _next(self, kind: str) -> None:
        if self._log(kind):
            self._timers[kind] = asyncio.get_running_loop().call_later(self._every_s, self._next, kind)
        else:
            self._timers.pop(kind, None)

    def _log(self, kind: str) -> bool:
        """Log what has occurred since the line before.

        Returns True, or False if nothing has occurred: nothing is logged then.
        """
        counts, newest = self._counts.pop(kind, Counter()), self._newest.pop(kind, None)
        if newest is not None:
            self._facts.fact(self._event, **self._line(kind, counts, newest))
        return newest is not None

    def _line(self, kind: str, counts: Mapping[str, int], newest: dict[str, Any]) -> dict[str, Any]:
        return {**counts, **newest}
