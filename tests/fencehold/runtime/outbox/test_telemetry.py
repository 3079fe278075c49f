"""What a worker tells: metrics by their names, and a trace that goes along with the event."""

from __future__ import annotations

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client import CollectorRegistry

import fencehold
from fencehold.telemetry.fan_out import FanOut
from fencehold.telemetry.prometheus import PrometheusSink


async def handled(url: str, registry: CollectorRegistry, count: int, failing: int = 0) -> None:
    sink = FanOut(PrometheusSink(registry))
    async with fencehold.connect(url, facts=sink) as store:
        await store.init()
        outbox = store.outbox("outbox", lease="5s", max_retries=1)
        with trace.get_tracer("test").start_as_current_span("add"):
            await outbox.add_many([("a", {"n": n}) for n in range(count)])
        seen: list[int] = []

        async def handle(event: fencehold.Claim) -> None:
            seen.append(event.payload["n"])
            if len(seen) == count:
                worker.stop()
            if event.payload["n"] < failing:
                raise ValueError("no")

        worker = outbox.worker(handle, worker_id="w1")
        await worker.run()


@pytest.mark.parametrize("any_url", ["sqlite", "postgres", "mssql"])
async def test_metrics_of_a_worker_and_its_reaper(request: pytest.FixtureRequest, any_url: str) -> None:
    registry = CollectorRegistry()
    await handled(request.getfixturevalue(f"{any_url}_url"), registry, count=20, failing=2)
    about = {"outbox": "outbox"}
    assert registry.get_sample_value("outbox_events_completed_total", about) == 18
    assert registry.get_sample_value("outbox_events_dead_letter_total", about) == 2
    assert registry.get_sample_value("outbox_processing_latency_seconds_count", about) == 18
    longest_s = registry.get_sample_value("outbox_processing_latency_seconds_sum", about)
    assert longest_s is not None
    assert 0 < longest_s < 18 * 30


async def test_the_span_of_a_handler_belongs_to_the_trace_of_whoever_added_the_event(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)
    await handled(sqlite_url, CollectorRegistry(), count=2, failing=1)
    spans = exporter.get_finished_spans()
    [added] = [span for span in spans if span.name == "add"]
    processed = [span for span in spans if span.name == "process a"]
    assert len(processed) == 2
    assert {span.context.trace_id for span in processed if span.context} == {added.context.trace_id}
    assert sorted(span.status.is_ok for span in processed) == [False, True]
