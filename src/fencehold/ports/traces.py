"""Traces across an outbox: the trace context of the program that adds an event reaches the event's handler."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any, Protocol

from fencehold.ports.events import Claim


class TracePort(Protocol):
    """Carries traces across an outbox. Its methods never raise, because an error of a tracer must not lose an event."""

    def carry(self) -> Mapping[str, str]:
        """Return the caller's trace context as headers (traceparent, tracestate, baggage); empty outside a trace."""
        ...

    def handling(self, outbox: str, worker_id: str, claim: Claim) -> AbstractContextManager[Any] | None:
        """Return a span for one run of a handler, linked to the trace in the event's `metadata`.

        None: tracing is off.
        """
        ...
