"""Traces across an outbox by OpenTelemetry's API alone; the program chooses the SDK. No other file uses it.

The code that adds an event stores `carry()` in its metadata under "trace"; the code that handles it continues that
trace.
"""

from __future__ import annotations

import asyncio
import time
import traceback
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from types import TracebackType
from typing import TYPE_CHECKING, Any

from fencehold.model.errors import ConfigurationError, redact
from fencehold.ports.events import Claim
from fencehold.ports.traces import TracePort
from fencehold.telemetry.logs import LOGGER

if TYPE_CHECKING:
    from opentelemetry.trace import Span, Tracer, TracerProvider

CARRIED_UNDER = "trace"
#: How often to look for a provider, which may be set after the first event. A look costs 1.3 us: too much for each
#: event of a program that has the API installed and no SDK.
LOOK_EVERY_S = 1.0


class NoTraces:
    """Stands for tracing that is off: it stores nothing in events and makes no spans."""

    def carry(self) -> Mapping[str, str]:
        return {}

    def handling(self, outbox: str, worker_id: str, claim: Claim) -> AbstractContextManager[Any] | None:
        return None


class OpenTelemetryTraces:
    """Makes one consumer span per try: a child of the trace in the event, with a link to that trace. Never raises.

    `tracer_provider` None: the provider that is set for the whole process, even if it is set later.
    """

    def __init__(
        self, tracer_provider: TracerProvider | None = None, clock_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._otel = _Api()
        self._provider = tracer_provider
        self._clock_s = clock_s
        self._tracer: Tracer | None = None
        self._look_at_s = float("-inf")

    def carry(self) -> Mapping[str, str]:
        headers: dict[str, str] = {}
        try:
            self._otel.propagate.inject(headers)
        except Exception as error:  # noqa: BLE001 - an event without its trace is better than no event
            _tell(error)
            return {}
        return headers

    def handling(self, outbox: str, worker_id: str, claim: Claim) -> AbstractContextManager[Any] | None:
        tracer = self._tracer or self._look_for_tracer()
        return None if tracer is None else _Handling(self._otel, tracer, outbox, worker_id, claim)

    def _look_for_tracer(self) -> Tracer | None:
        """Return the tracer, once one was found; None until then. Looks for one every LOOK_EVERY_S at most.

        The first tracer is kept, because a provider is set once per process.
        """
        now_s = self._clock_s()
        if now_s < self._look_at_s:
            return None
        self._look_at_s = now_s + LOOK_EVERY_S
        try:
            self._tracer = self._otel.real_tracer(self._provider)
        except Exception as error:  # noqa: BLE001 - an event without its span is better than no event
            _tell(error)
        return self._tracer


def traces() -> TracePort:
    """Return OpenTelemetryTraces if its API is installed and usable, else NoTraces."""
    try:
        return OpenTelemetryTraces()
    except ConfigurationError:
        return NoTraces()
    except Exception as error:  # noqa: BLE001 - such as a propagator named in the environment and not installed
        _tell(error)
        return NoTraces()


class _Api:
    """The parts of opentelemetry-api that are used, imported when the first tracer is wanted."""

    def __init__(self) -> None:
        try:
            from opentelemetry import context, propagate, trace
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] != "opentelemetry":
                raise
            raise ConfigurationError(
                "The package opentelemetry-api is not installed.",
                hint="pip install 'fencehold[otel]'",
                code="no_driver",
            ) from None
        self.context, self.propagate, self.trace = context, propagate, trace

    def real_tracer(self, given: TracerProvider | None) -> Tracer | None:
        """Return a tracer; None if its spans would record nothing, because no SDK is set or it is switched off."""
        trace = self.trace
        provider = trace.get_tracer_provider() if given is None else given
        if isinstance(provider, trace.ProxyTracerProvider):
            return None
        tracer: Tracer = provider.get_tracer("fencehold")
        return None if isinstance(tracer, trace.NoOpTracer) else tracer

    def start(self, tracer: Tracer, outbox: str, worker_id: str, claim: Claim) -> tuple[Span, Any]:
        """Start a span for one try.

        Returns the span and the context to run in: the event's trace, not that of the worker.
        """
        trace = self.trace
        carried = self._carried(claim)
        sender = trace.get_current_span(carried).get_span_context()
        span = tracer.start_span(
            f"process {claim.event_type}",
            context=carried,
            kind=trace.SpanKind.CONSUMER,
            links=[trace.Link(sender)] if sender.is_valid else None,
            attributes={
                "messaging.system": "fencehold",
                "messaging.operation.type": "process",
                "messaging.destination.name": outbox,
                "messaging.message.id": claim.tracking_id,
                "fencehold.event_type": claim.event_type,
                "fencehold.attempt": claim.attempt,
                "fencehold.worker_id": worker_id,
            },
        )
        return span, trace.set_span_in_context(span, carried)

    def _carried(self, claim: Claim) -> Any:
        try:
            return self.propagate.extract(_headers(claim), self.context.Context())
        except Exception as error:  # noqa: BLE001 - a propagator may fail on what it reads: then begin a new trace
            _tell(error)
            return self.context.Context()

    def blame(self, span: Span, error: BaseException) -> None:
        """Record the exception and the status in the span, without passwords."""
        if not span.is_recording():
            return
        stack = "".join(traceback.format_exception(error))
        said = {"exception.message": redact(str(error)), "exception.stacktrace": redact(stack)}
        span.record_exception(error, attributes=said)
        text = "stopped" if isinstance(error, asyncio.CancelledError) else redact(f"{type(error).__name__}: {error}")
        span.set_status(self.trace.Status(self.trace.StatusCode.ERROR, text))


class _Handling:
    """The span around one run of a handler. Errors of the handler propagate; errors of the tracer are logged only."""

    def __init__(self, otel: _Api, tracer: Tracer, outbox: str, worker_id: str, claim: Claim) -> None:
        self._otel = otel
        self._tracer = tracer
        self._about = (outbox, worker_id, claim)
        self._span: Span | None = None
        self._token: Any = None

    def __enter__(self) -> Span | None:
        try:
            self._span, context = self._otel.start(self._tracer, *self._about)
            self._token = self._otel.context.attach(context)
        except Exception as error:  # noqa: BLE001 - the handler runs, untraced
            _tell(error)
        return self._span

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self._token is not None:
                self._otel.context.detach(self._token)
            if self._span is not None:
                self._end(self._span, error)
        except Exception as broken:  # noqa: BLE001 - the result of the handler counts
            _tell(broken)

    def _end(self, span: Span, error: BaseException | None) -> None:
        try:
            if error is not None:
                self._otel.blame(span, error)
        finally:
            span.end()


def _headers(claim: Claim) -> dict[str, str]:
    """Return the trace headers in the event; none if they do not look as `carry()` makes them.

    Anybody may have added them.
    """
    if claim.metadata_json is None or f'"{CARRIED_UNDER}"' not in claim.metadata_json:
        return {}
    try:
        carried = claim.metadata[CARRIED_UNDER]
    except (ValueError, KeyError, TypeError, RecursionError):
        return {}
    if not isinstance(carried, dict):
        return {}
    return {key: value for key, value in carried.items() if isinstance(value, str)}


_told: set[str] = set()


def _tell(error: Exception) -> None:
    """Log an error once per type: a broken tracer would otherwise fill the log at the rate of the events."""
    kind = type(error).__name__
    if kind not in _told:
        _told.add(kind)
        LOGGER.warning("traces_failed error=%s", kind)
