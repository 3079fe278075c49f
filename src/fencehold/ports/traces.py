"""Traces across an outbox: the trace context of the program that adds an event reaches the event's handler."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any, Protocol

from fencehold.ports.events import Claim


class TracePort(Protocol):
    """Neither verb ever raises: a broken tracer must not cost an event."""

    def carry(self) -> Mapping[str, str]:
        """The caller's trace context as headers (traceparent, tracestate, baggage); empty outside a trace."""
        ...

    def handling(self, outbox: str, worker_id: str, claim: Claim) -> AbstractContextManager[Any] | None:
        """A span around one run of a handler, linked to the trace in `metadata`; None: tracing is off, at no cost."""
        ...
