"""Combines several sinks into one."""

from __future__ import annotations

from typing import Any

from fencehold.ports.facts import FactSink, wants_latencies
from fencehold.telemetry.logs import LOGGER


class FanOut:
    """Passes every fact to every sink. A sink that raises affects neither the other sinks nor the caller."""

    def __init__(self, *sinks: FactSink) -> None:
        self._sinks = sinks
        self._blamed: set[int] = set()
        self.wants_latencies = any(map(wants_latencies, sinks))

    def fact(self, event: str, **fields: Any) -> None:
        for place, sink in enumerate(self._sinks):
            try:
                sink.fact(event, **fields)
            except Exception as error:  # noqa: BLE001 - a broken sink must not cost a lease
                self._blame(place, event, error)

    def _blame(self, place: int, event: str, error: Exception) -> None:
        """Log a failure once per sink: a broken sink would otherwise fill the log at the rate of the facts."""
        if place in self._blamed:
            return
        self._blamed.add(place)
        sink = type(self._sinks[place]).__name__
        # Without the error's text: it may quote the fields of the fact.
        LOGGER.error("sink_failed sink=%s fact=%s error=%s", sink, event, type(error).__name__)


#: Ignores all facts.
UNHEARD = FanOut()
