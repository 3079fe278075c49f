"""Where the library reports each thing that happened, once; telemetry passes it to logs, metrics and callers' sinks."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable


class FactSink(Protocol):
    def fact(self, event: str, **fields: Any) -> None:
        """Report one fact. Never raises and never blocks: a broken sink must not cost a lease."""
        ...


@runtime_checkable
class MetricsSink(FactSink, Protocol):
    """A sink that can also use what costs something to find out: latencies of each event, counts of the table."""

    wants_latencies: bool


def wants_latencies(sink: FactSink) -> bool:
    return isinstance(sink, MetricsSink) and bool(sink.wants_latencies)
