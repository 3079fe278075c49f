"""Where the library reports each thing that happened, once; telemetry passes it to logs, metrics and callers' sinks."""

from __future__ import annotations

from typing import Any, Protocol


class FactSink(Protocol):
    def fact(self, event: str, **fields: Any) -> None:
        """Report one fact. Never raises and never blocks: a broken sink must not cost a lease."""
        ...
