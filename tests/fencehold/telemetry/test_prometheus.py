"""Facts become metrics: names, labels, values, and how long a series lives."""

import logging
import math
import random
import re
import subprocess
import sys
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, Gauge, Histogram

from fencehold.model.errors import ConfigurationError
from fencehold.telemetry import prometheus
from fencehold.telemetry.metrics import FEEDS, LATENCY_S, METRICS, WORKER, Kind
from fencehold.telemetry.prometheus import PrometheusSink
from tests.fencehold.ports.facts_contract import CONTRACT, OF_WORKER


@pytest.fixture
def registry():
    return CollectorRegistry()


@pytest.fixture
def sink(registry):
    return PrometheusSink(registry)


def tell(sink, event, **changed):
    sink.fact(event, **{**CONTRACT[event], **changed})


def value(registry, name, **labels):
    return registry.get_sample_value(name, labels)


def series_of(registry, worker_id):
    return [
        sample.name
        for metric in registry.collect()
        for sample in metric.samples
        if sample.labels.get("worker_id") == worker_id
    ]


def test_a_batch_counts_events_refusals_batches_and_latencies(registry, sink):
    tell(sink, "events_completed")
    tell(sink, "events_completed")
    assert value(registry, "outbox_events_completed_total", outbox="orders") == 6
    assert value(registry, "outbox_completions_refused_total", outbox="orders") == 2
    assert value(registry, "worker_batches_processed_total", **OF_WORKER) == 2
    assert value(registry, "outbox_processing_latency_seconds_count", outbox="orders") == 6
    assert value(registry, "outbox_processing_latency_seconds_sum", outbox="orders") == pytest.approx(14.64)
    assert value(registry, "outbox_processing_latency_seconds_bucket", outbox="orders", le="0.5") == 4


def test_a_claim_counts_its_events_and_an_empty_one_is_no_batch(registry, sink):
    for claimed in (20, 0, 3):
        tell(sink, "events_claimed", claimed=claimed)
    assert value(registry, "outbox_events_claimed_total", outbox="orders") == 23
    assert value(registry, "worker_events_per_batch_count", **OF_WORKER) == 2
    assert value(registry, "worker_events_per_batch_sum", **OF_WORKER) == 23


def test_a_failed_try_is_a_failure_or_a_dead_letter_and_the_reapers_dead_count_too(registry, sink):
    tell(sink, "event_failed")
    tell(sink, "event_failed", status="DEAD_LETTER")
    tell(sink, "reaper_run", dead=2)
    assert value(registry, "outbox_events_failed_total", outbox="orders") == 1
    assert value(registry, "outbox_events_dead_letter_total", outbox="orders") == 3


def test_a_reaper_run_is_counted_also_when_it_found_nothing(registry, sink):
    tell(sink, "reaper_run")
    tell(sink, "reaper_run", recovered=0, dead=0, stale_s=[])
    assert value(registry, "reaper_runs_total", outbox="orders") == 2
    assert value(registry, "reaper_recovered_count_total", outbox="orders") == 3
    assert value(registry, "worker_reaper_recovered_total", outbox="orders") == 3
    assert value(registry, "reaper_stale_duration_seconds_count", outbox="orders") == 4
    assert value(registry, "reaper_run_duration_seconds_count", outbox="orders") == 2


def test_stats_are_gauges_that_follow_the_table(registry, sink):
    tell(sink, "outbox_stats", pending=100)
    tell(sink, "outbox_stats")
    assert value(registry, "outbox_events_pending", outbox="orders") == 12
    assert value(registry, "outbox_events_processing", outbox="orders") == 5
    assert value(registry, "outbox_events_retrying", outbox="orders") == 2
    assert value(registry, "outbox_dead_letters", outbox="orders") == 1
    assert value(registry, "outbox_oldest_pending_age_seconds", outbox="orders") == 3.5


def test_gauges_of_a_table_that_nobody_can_look_at_are_gone_until_the_next_look(registry, sink):
    tell(sink, "outbox_stats")
    tell(sink, "outbox_unseen")
    for name in ("outbox_oldest_pending_age_seconds", "outbox_events_pending", "outbox_dead_letters"):
        assert value(registry, name, outbox="orders") is None
    assert value(registry, "outbox_last_look_timestamp_seconds", outbox="orders") == 1.5e9
    tell(sink, "outbox_stats", oldest_pending_age_s=7.0)
    assert value(registry, "outbox_oldest_pending_age_seconds", outbox="orders") == 7.0


def test_heartbeats_are_counted_by_how_they_ended(registry, sink):
    tell(sink, "worker_heartbeat")
    tell(sink, "worker_heartbeat_failed")
    assert value(registry, "worker_heartbeats_sent_total", **OF_WORKER) == 10
    assert value(registry, "worker_heartbeats_refused_total", **OF_WORKER) == 1
    assert value(registry, "worker_heartbeats_failed_total", **OF_WORKER) == 1


def test_counters_of_an_outbox_start_at_zero_and_its_gauges_wait_for_the_truth(registry, sink):
    tell(sink, "worker_started")
    assert value(registry, "worker_heartbeats_sent_total", **OF_WORKER) == 0
    tell(sink, "events_purged", count=0)
    assert value(registry, "reaper_runs_total", outbox="orders") == 0
    assert value(registry, "outbox_processing_latency_seconds_count", outbox="orders") == 0
    assert value(registry, "outbox_events_pending", outbox="orders") is None


@pytest.mark.parametrize("last", ["worker_stopped", "worker_died"])
def test_the_series_of_a_worker_go_with_it_and_those_of_others_stay(registry, sink, last):
    for event in ("worker_started", "events_claimed", "events_completed", "worker_heartbeat", "worker_paused"):
        tell(sink, event)
        tell(sink, event, worker_id="w2")
    tell(sink, last)
    assert series_of(registry, "w1") == []
    assert value(registry, "worker_running", outbox="orders", worker_id="w2") == 1
    assert value(registry, "outbox_events_completed_total", outbox="orders") == 6
    tell(sink, last)  # a worker that died is also told to have stopped
    tell(sink, "events_completed")
    assert value(registry, "worker_batches_processed_total", **OF_WORKER) == 1


def test_a_death_stays_counted_when_the_worker_is_gone(registry, sink):
    tell(sink, "worker_started")
    tell(sink, "worker_died")
    assert value(registry, "outbox_worker_deaths_total", outbox="orders") == 1


def test_thousands_of_short_lived_workers_leave_nothing_behind(registry, sink):
    for number in range(3000):
        for event in ("worker_started", "events_completed", "worker_stopped"):
            tell(sink, event, worker_id=f"w{number}")
    instruments = prometheus._instruments(registry)
    assert (len(instruments._moves), len(instruments._label_sets)) == (0, 1)
    assert not [one for one in registry.collect() for sample in one.samples if "worker_id" in sample.labels]


def test_a_pause_is_a_gauge_from_start_to_stop(registry, sink):
    seen = []
    for event in ("worker_started", "worker_paused", "worker_resumed", "worker_stopped"):
        tell(sink, event)
        seen.append(value(registry, "worker_paused", **OF_WORKER))
    assert seen == [0, 1, 0, None]


def test_leading_is_a_gauge_and_each_change_is_counted(registry, sink):
    seen = []
    for event in ("leader_acquire_failed", "leader_acquired", "leader_renew_failed", "leader_lost"):
        tell(sink, event)
        seen.append(value(registry, "fencehold_leader", lease_name="nightly"))
    tell(sink, "leader_acquired", lease_epoch=4)
    changes = "fencehold_leader_transitions_total"
    assert seen == [0, 1, 1, 0]
    assert value(registry, "fencehold_renew_failures_total", lease_name="nightly") == 1
    counts = [value(registry, changes, lease_name="nightly", change=one) for one in ("acquired", "lost", "released")]
    assert counts == [2, 1, 0]


def test_facts_of_two_threads_that_cross_do_not_leave_a_leader_behind(registry, sink):
    tell(sink, "leader_lost", lease_epoch=5)
    tell(sink, "leader_acquired", lease_epoch=5)
    assert value(registry, "fencehold_leader", lease_name="nightly") == 0
    tell(sink, "leader_acquired", lease_epoch=6)
    tell(sink, "leader_lost", lease_epoch=5)
    tell(sink, "leader_acquire_failed")  # a second candidate in this process
    assert value(registry, "fencehold_leader", lease_name="nightly") == 1


def test_handlers_that_do_not_end_show_in_gauges_of_their_worker(registry, sink):
    tell(sink, "worker_watched")
    assert value(registry, "worker_handlers_running", **OF_WORKER) == 10
    assert value(registry, "worker_handlers_hung", **OF_WORKER) == 2
    assert value(registry, "worker_oldest_handler_age_seconds", **OF_WORKER) == 312.5
    assert value(registry, "worker_loop_silent_seconds", **OF_WORKER) == 7.5
    tell(sink, "handler_slow")
    tell(sink, "worker_loop_blocked")
    tell(sink, "worker_stuck")
    for name in ("worker_slow_handlers_total", "worker_loop_blocked_total", "worker_stuck_total"):
        assert value(registry, name, **OF_WORKER) == 1


def test_items_are_counted_by_their_kind_and_handlers_also_by_the_state_they_serve(registry, sink):
    tell(sink, "items_leased")
    tell(sink, "items_leased", kind="transfer", leased=1)
    tell(sink, "item_processed")
    tell(sink, "item_processed", state="AGREED")
    assert value(registry, "fencehold_items_leased_total", kind="negotiation") == 20
    assert value(registry, "fencehold_items_leased_total", kind="transfer") == 1
    assert value(registry, "fencehold_items_processed_total", kind="negotiation", state="REQUESTED") == 1
    assert value(registry, "fencehold_items_processed_total", kind="negotiation", state="AGREED") == 1


def test_faults_of_our_own_have_no_labels(registry, sink):
    tell(sink, "internal_error")
    assert value(registry, "fencehold_internal_errors_total") == 1
    assert value(registry, "fencehold_callback_failures_total") == 0


@pytest.mark.parametrize("event", sorted(CONTRACT))
def test_every_fact_of_the_contract_is_taken_without_a_complaint(registry, sink, event, caplog):
    tell(sink, event)
    assert caplog.records == []
    moved = {metric.name for metric, feed in FEEDS if feed.fact == event}
    silent = {
        "worker_stopping",
        "worker_stopped",
        "leader_renewed",
        "item_called_off",
        "item_unchanged",
        "processor_started",
    }
    silent |= {"processor_stopping", "processor_stopped", "worker_gave_up", "handler_hung"}
    silent |= {"handler_ended_late", "store_answers", "outbox_unseen", "fence_not_awaited", "lease_row_locked"}
    assert bool(moved) is (event not in silent)


def test_every_metric_is_fed_by_a_fact_of_the_contract():
    assert {feed.fact for _, feed in FEEDS} <= CONTRACT.keys()
    assert len({metric.name for metric in METRICS}) == len(METRICS) == len({metric for metric, _ in FEEDS})


def test_names_are_those_of_the_rule_book_in_prometheus_spelling():
    for metric in METRICS:
        stem = re.sub("(_total|_seconds)$", "", metric.name)
        if metric.rule_book:
            assert metric.rule_book.replace(".", "_").removesuffix("_total") == stem
        assert metric.name.endswith("_total") is (metric.kind is Kind.COUNTER)
        assert (metric.kind is Kind.HISTOGRAM) is bool(metric.buckets)
        assert metric.name.startswith("worker_") or metric.labels != WORKER


def test_a_batch_of_values_gives_what_observing_each_gives(registry):
    rng = random.Random(7)
    values = [*LATENCY_S, 0.0, 1e9, math.nextafter(0.5, 1), *(rng.expovariate(0.3) for _ in range(500))]
    plain = Histogram("plain_seconds", "", ["outbox"], buckets=LATENCY_S, registry=registry).labels("orders")
    for one in values:
        plain.observe(one)
    rng.shuffle(values)
    tell(PrometheusSink(registry), "events_completed", latencies_s=values)
    for bound in [*map(str, LATENCY_S), "+Inf"]:
        expected = value(registry, "plain_seconds_bucket", outbox="orders", le=bound)
        assert value(registry, "outbox_processing_latency_seconds_bucket", outbox="orders", le=bound) == expected
    total = value(registry, "plain_seconds_sum", outbox="orders")
    assert value(registry, "outbox_processing_latency_seconds_sum", outbox="orders") == pytest.approx(total)


def test_a_latency_below_zero_counts_as_none(registry, sink):
    tell(sink, "events_completed", latencies_s=[-3.0, 1.0])
    assert value(registry, "outbox_processing_latency_seconds_sum", outbox="orders") == 1
    assert value(registry, "outbox_processing_latency_seconds_bucket", outbox="orders", le="0.005") == 1


def test_a_fact_that_breaks_its_contract_is_told_once_and_never_raises(registry, sink, caplog):
    for _ in range(3):
        sink.fact("events_completed", outbox="orders")
        sink.fact("of_another_world", payload=object())
    assert [record.levelno for record in caplog.records] == [logging.ERROR]
    assert "fact=events_completed" in caplog.text


def test_beyond_the_limit_new_leases_are_not_counted_and_known_ones_are(registry, sink, caplog, monkeypatch):
    monkeypatch.setattr(prometheus, "LABEL_SETS_MAX", 6)
    for number in range(20):
        tell(sink, "leader_acquired", lease_name=f"user-{number}")
    tell(sink, "leader_lost", lease_name="user-0")
    assert value(registry, "fencehold_leader", lease_name="user-0") == 0
    assert value(registry, "fencehold_leader", lease_name="user-19") is None
    assert caplog.text.count("metrics_full") == 1


def test_two_sinks_on_one_registry_count_together(registry):
    tell(PrometheusSink(registry), "events_purged")
    tell(PrometheusSink(registry), "events_purged")
    assert value(registry, "outbox_events_purged_total", outbox="orders") == 18


def test_a_name_another_part_uses_is_said_and_nothing_is_left_registered(registry):
    taken = Gauge("reaper_runs_total", "ours", registry=registry)
    with pytest.raises(ConfigurationError, match=r"metric_name_taken.*a CollectorRegistry of its own"):
        PrometheusSink(registry)
    registry.unregister(taken)
    tell(PrometheusSink(registry), "reaper_run")


def test_the_exposition_is_what_a_scrape_reads(sink):
    tell(sink, "outbox_stats")
    text, content_type = sink.exposition()
    assert b'outbox_oldest_pending_age_seconds{outbox="orders"} 3.5' in text
    assert content_type.startswith("text/plain")


def test_without_the_package_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(ConfigurationError) as raised:
        PrometheusSink()
    assert raised.value.code == "no_driver"
    assert "pip install 'fencehold[prometheus]'" in str(raised.value)


def test_gauges_of_several_processes_add_up_to_one_answer(tmp_path: Path):
    """prometheus-client's multi-process mode: the newest look at the table, and whether any process leads."""
    program = (
        "import sys; from prometheus_client import CollectorRegistry, generate_latest, multiprocess as m\n"
        "from fencehold.telemetry.prometheus import PrometheusSink; sink = PrometheusSink()\n"
        "pending, epoch = int(sys.argv[1]), int(sys.argv[2])\n"
        "sink.fact('outbox_stats', outbox='o', pending=pending, processing=0, failed=0, dead_letter=0,"
        " oldest_pending_age_s=0.0, looked_at=1.0)\n"
        "sink.fact('leader_acquired' if epoch else 'leader_acquire_failed', lease_name='n', lease_epoch=epoch)\n"
        "sink.fact('events_completed', outbox='o', worker_id='w', completed=1, refused=0, latencies_s=[1, 2])\n"
        "r = CollectorRegistry(); m.MultiProcessCollector(r); print(generate_latest(r).decode())\n"
    )
    for pending, epoch in (("5", "1"), ("9", "0")):
        done = subprocess.run(
            [sys.executable, "-c", program, pending, epoch], env={"PROMETHEUS_MULTIPROC_DIR": str(tmp_path)},
            capture_output=True, text=True, check=False, timeout=30,
        )  # fmt: skip
        assert (done.returncode, done.stderr) == (0, "")
    assert 'outbox_events_pending{outbox="o"} 9.0' in done.stdout
    assert 'fencehold_leader{lease_name="n"} 1.0' in done.stdout
    assert 'outbox_processing_latency_seconds_count{outbox="o"} 4.0' in done.stdout
