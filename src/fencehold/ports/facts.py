"""What happened, told once; telemetry decides who hears it."""

from __future__ import annotations

from typing import Any, Protocol


class FactSink(Protocol):
    def fact(self, event: str, **fields: Any) -> None:
        """Never raises and never blocks: a broken sink must not cost a lease."""
        ...
