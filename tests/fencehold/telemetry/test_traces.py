"""A trace goes with an event: from whoever added it to whoever handles it. By a real SDK that exports to memory."""

import asyncio
import json
import subprocess
import sys

import pytest
from opentelemetry import baggage, context, propagate, trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF

from fencehold.model.errors import ConfigurationError
from fencehold.ports.events import Claim
from fencehold.telemetry import traces as module
from fencehold.telemetry.traces import NoTraces, OpenTelemetryTraces, traces

TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture
def exported():
    return InMemorySpanExporter()


@pytest.fixture
def provider(exported):
    made = TracerProvider(shutdown_on_exit=False)
    made.add_span_processor(SimpleSpanProcessor(exported))
    return made


@pytest.fixture
def traced(provider):
    return OpenTelemetryTraces(provider)


def claim(metadata=None):
    text = metadata if isinstance(metadata, str) or metadata is None else json.dumps(metadata)
    return Claim(7, "t-1", "order.paid", '{"iban":"DE89"}', attempt=2, metadata_json=text)


def handle(traced, of, act=lambda: None):
    around = traced.handling("orders", "w1", of)
    assert around is not None
    with around:
        return act()


def test_the_handler_continues_the_trace_of_whoever_added_the_event(provider, traced, exported):
    with provider.get_tracer("app").start_as_current_span("checkout") as sender:
        headers = dict(traced.carry())
    handle(traced, claim({"trace": headers}))
    sent, handled = exported.get_finished_spans()
    assert headers.keys() == {"traceparent"}
    assert handled.parent.span_id == sent.context.span_id == sender.get_span_context().span_id
    assert handled.context.trace_id == sent.context.trace_id
    assert [link.context.span_id for link in handled.links] == [sent.context.span_id]


def test_the_span_says_what_was_handled_and_by_whom(traced, exported):
    handle(traced, claim())
    (span,) = exported.get_finished_spans()
    assert (span.name, span.kind) == ("process order.paid", trace.SpanKind.CONSUMER)
    assert dict(span.attributes) == {
        "messaging.system": "fencehold",
        "messaging.operation.type": "process",
        "messaging.destination.name": "orders",
        "messaging.message.id": "t-1",
        "fencehold.event_type": "order.paid",
        "fencehold.attempt": 2,
        "fencehold.worker_id": "w1",
    }
    assert span.status.status_code is trace.StatusCode.UNSET
    assert "DE89" not in span.to_json()


def test_the_span_is_current_inside_the_handler_and_gone_after(provider, traced, exported):
    def work():
        with provider.get_tracer("app").start_as_current_span("insert"):
            pass

    handle(traced, claim({"trace": {"traceparent": TRACEPARENT, "baggage": "tenant=acme"}}), work)
    inner, outer = exported.get_finished_spans()
    assert inner.parent.span_id == outer.context.span_id
    assert not trace.get_current_span().get_span_context().is_valid


def test_baggage_goes_along_and_that_of_the_worker_does_not(traced):
    token = context.attach(baggage.set_baggage("starter", "main"))
    try:
        of = claim({"trace": {"traceparent": TRACEPARENT, "baggage": "tenant=acme"}})
        assert dict(handle(traced, of, baggage.get_all)) == {"tenant": "acme"}
        assert dict(baggage.get_all()) == {"starter": "main"}
    finally:
        context.detach(token)


def test_an_event_without_a_trace_starts_one_of_its_own_whoever_started_the_worker(provider, traced, exported):
    with provider.get_tracer("app").start_as_current_span("start the worker"):
        handle(traced, claim({"tenant": "acme"}))
    handled, _starter = exported.get_finished_spans()
    assert handled.parent is None
    assert handled.links == ()


@pytest.mark.parametrize(
    "metadata",
    [
        None, "", "{", '"trace"', '["trace"]', "null", {"trace": None}, {"trace": "00-1-2-3"},
        {"trace": ["x"]}, {"trace": {}},
        {"trace": {"traceparent": None}}, {"trace": {"traceparent": 7}}, {"trace": {"traceparent": "00-zz-1-01"}},
        {"trace": {"traceparent": ["a"]}}, {"trace": {"traceparent": "0" * 100_000}},
        {"trace": {"traceparent": f"00-{'0' * 32}-{'0' * 16}-01", "tracestate": "=,=,"}},
        {"trace": {"baggage": "=;=;%%%,,,"}}, '{"trace":' + "[" * 100_000, '{"x": {"trace": 1}}',
    ],
)  # fmt: skip
def test_malformed_headers_never_raise_and_the_handler_is_traced_all_the_same(traced, exported, metadata):
    assert handle(traced, claim(metadata), lambda: "done") == "done"
    (span,) = exported.get_finished_spans()
    assert (span.parent, span.links) == (None, ())


def test_a_bad_tracestate_does_not_cost_the_parent(traced, exported):
    handle(traced, claim({"trace": {"traceparent": TRACEPARENT, "tracestate": "no equals sign"}}))
    (span,) = exported.get_finished_spans()
    assert f"{span.parent.span_id:016x}" == "b7ad6b7169203331"


def test_what_the_handler_raises_is_recorded_without_passwords_and_goes_on(traced, exported):
    def fail():
        raise ConnectionError("no route to postgresql://me:hunter2@host/db")

    with pytest.raises(ConnectionError):
        handle(traced, claim(), fail)
    (span,) = exported.get_finished_spans()
    (event,) = span.events
    assert span.status.status_code is trace.StatusCode.ERROR
    assert span.status.description == "ConnectionError: no route to postgresql://me:***@host/db"
    assert (event.name, event.attributes["exception.type"]) == ("exception", "ConnectionError")
    assert "in fail" in event.attributes["exception.stacktrace"]
    assert "hunter2" not in span.to_json()


async def test_a_handler_that_was_stopped_has_failed(traced, exported):
    started = asyncio.Event()

    async def run():
        with traced.handling("orders", "w1", claim()):
            started.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(run())
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    (span,) = exported.get_finished_spans()
    assert (span.status.status_code, span.status.description) == (trace.StatusCode.ERROR, "stopped")


async def test_handlers_that_run_at_once_do_not_share_a_span(traced, exported):
    async def run(number):
        with traced.handling("orders", "w1", claim()) as span:
            await asyncio.sleep(0)
            return trace.get_current_span() is span

    assert await asyncio.gather(*(asyncio.create_task(run(number)) for number in range(20))) == [True] * 20
    assert len({span.context.trace_id for span in exported.get_finished_spans()}) == 20


def test_a_trace_that_is_not_sampled_goes_on_unsampled(exported):
    provider = TracerProvider(sampler=ALWAYS_OFF, shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exported))
    traced = OpenTelemetryTraces(provider)

    def fail():
        assert propagated()["traceparent"].startswith("00-0af7651916cd43dd8448eb211c80319c-")
        raise KeyError

    with pytest.raises(KeyError):
        handle(traced, claim({"trace": {"traceparent": TRACEPARENT}}), fail)
    assert exported.get_finished_spans() == ()


def propagated():
    headers: dict[str, str] = {}
    propagate.inject(headers)
    return headers


def test_outside_a_trace_nothing_is_carried(traced):
    assert traced.carry() == {}


class BrokenProvider(trace.TracerProvider):
    def __init__(self, tracer=None):
        self.tracer = tracer

    def get_tracer(self, *args, **kwargs):
        if self.tracer is None:
            raise RuntimeError("no tracer")
        return self.tracer


class BrokenSpan(trace.NonRecordingSpan):
    ended = False

    def is_recording(self):
        return True

    def record_exception(self, *args, **kwargs):
        raise RuntimeError("no more events")

    def end(self, end_time=None):
        self.ended = True


class Tracer(trace.Tracer):
    def __init__(self, start):
        self.start = start

    def start_span(self, *args, **kwargs):
        return self.start(*args, **kwargs)

    def start_as_current_span(self, *args, **kwargs): ...


def test_a_broken_tracer_costs_no_event(caplog):
    def broken(*args, **kwargs):
        raise RuntimeError("no more spans")

    module._told.clear()
    traced = OpenTelemetryTraces(BrokenProvider(Tracer(broken)))
    assert [handle(traced, claim(), lambda: "done") for _ in range(3)] == ["done"] * 3
    assert caplog.text.count("traces_failed error=RuntimeError") == 1
    assert OpenTelemetryTraces(BrokenProvider()).handling("orders", "w1", claim()) is None


def test_a_span_that_breaks_is_ended_and_hides_no_error():
    span = BrokenSpan(trace.INVALID_SPAN_CONTEXT)
    traced = OpenTelemetryTraces(BrokenProvider(Tracer(lambda *args, **kwargs: span)))
    with pytest.raises(KeyError):
        handle(traced, claim(), lambda: dict[str, int]()["missing"])
    assert span.ended


def test_a_propagator_that_breaks_costs_no_event(traced, exported, monkeypatch):
    def broken(*args, **kwargs):
        raise RuntimeError("no")

    monkeypatch.setattr(propagate, "inject", broken)
    monkeypatch.setattr(propagate, "extract", broken)
    assert traced.carry() == {}
    handle(traced, claim({"trace": {"traceparent": TRACEPARENT}}))
    assert len(exported.get_finished_spans()) == 1


def test_without_an_sdk_nobody_traces_and_one_set_later_is_noticed(provider, exported, monkeypatch):
    now_s = 0.0
    traced = OpenTelemetryTraces(clock_s=lambda: now_s)
    assert isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)
    assert traced.handling("orders", "w1", claim()) is None
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)
    assert traced.handling("orders", "w1", claim()) is None
    now_s = module.LOOK_EVERY_S
    handle(traced, claim())
    assert len(exported.get_finished_spans()) == 1


def test_an_sdk_that_is_switched_off_costs_nothing(monkeypatch):
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    assert OpenTelemetryTraces(TracerProvider(shutdown_on_exit=False)).handling("orders", "w1", claim()) is None


def test_traces_are_opentelemetrys_when_it_is_there_and_none_otherwise(monkeypatch):
    assert isinstance(traces(), OpenTelemetryTraces)
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    assert isinstance(traces(), NoTraces)
    with pytest.raises(ConfigurationError, match=r"no_driver.*pip install 'fencehold\[otel\]'"):
        OpenTelemetryTraces()


def test_a_propagator_that_is_not_installed_leaves_the_program_untraced():
    program = "from fencehold.telemetry.traces import traces; print(type(traces()).__name__)"
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, env={"OTEL_PROPAGATORS": "nosuch"}, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "NoTraces\n")
    assert "traces_failed error=ValueError" in done.stderr


def test_no_traces_carry_nothing_and_wrap_nothing():
    assert NoTraces().carry() == {}
    assert NoTraces().handling("orders", "w1", claim()) is None
