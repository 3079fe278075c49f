"""The names and buckets dashboards are built on."""

from submission_manager.executor_metrics import ExecutorMetrics
from submission_manager.metrics import Metrics

COUNTERS = {
    "submission_intents_created_total", "submission_idempotent_hits_total", "submission_idempotency_conflicts_total",
    'submission_intents_terminal_total{status="accepted"}', 'submission_exhausted_total{reason="deadline_exceeded"}',
    'submission_attempts_total{outcome_status="rejected"}', "submission_retries_scheduled_total",
    'submission_fenced_out_writes_total{write="record"}', "submission_lease_renewals_total",
    "submission_lease_renewals_failed_total",
}  # fmt: skip
GAUGES = {
    "submission_queue_depth", "submission_inflight_attempts", "submission_leader", "submission_lease_epoch",
    "submission_schedule_refresh_lag_seconds",
}  # fmt: skip


def shown(metrics: Metrics) -> dict[str, float]:
    lines = [line for line in metrics.exposition()[0].decode().splitlines() if not line.startswith("#")]
    return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines}


def test_every_promised_series_is_there_from_the_start():
    found = shown(Metrics())
    assert set(found) >= COUNTERS | GAUGES
    assert all(found[name] == 0 for name in COUNTERS | GAUGES)


def test_the_histograms_have_the_promised_buckets():
    found = shown(Metrics())
    for name, bounds in (
        (
            'submission_intent_time_to_terminal_seconds_bucket{le="%s",status="accepted"}',
            (0.5, 1, 2, 5, 10, 30, 60, 120),
        ),
        ('submission_attempt_duration_seconds_bucket{le="%s"}', (0.1, 0.25, 0.5, 1, 2.5, 5)),
        ('submission_queue_delay_seconds_bucket{le="%s"}', (0.01, 0.05, 0.1, 0.25, 0.5, 1, 2, 5)),
    ):
        prefix, suffix = name.split("%s")
        has = {key for key in found if key.startswith(prefix) and key.endswith(suffix)}
        assert has == {name % float(bound) for bound in bounds} | {name % "+Inf"}


def test_the_leaders_work_and_the_lease_are_counted():
    metrics = Metrics()
    as_port: ExecutorMetrics = metrics
    as_port.role(True, 7)
    as_port.queue_depth(5)
    as_port.attempt("accepted", 0.2)
    as_port.terminal("accepted", 1.5)
    as_port.fenced_out("record")
    as_port.refreshed(3, 0.01, 1.2)
    for event in ("leader_renewed", "leader_renewed", "leader_renew_failed", "leader_lost"):
        metrics.fact(event, lease_name="x", lease_epoch=7)
    found = shown(metrics)
    assert (found["submission_leader"], found["submission_lease_epoch"], found["submission_queue_depth"]) == (1, 7, 5)
    assert (found["submission_lease_renewals_total"], found["submission_lease_renewals_failed_total"]) == (2, 1)
    assert found['submission_attempts_total{outcome_status="accepted"}'] == 1
    assert found['submission_intent_time_to_terminal_seconds_bucket{le="1.0",status="accepted"}'] == 0
    assert found['submission_intent_time_to_terminal_seconds_bucket{le="2.0",status="accepted"}'] == 1
    assert found["submission_schedule_refresh_lag_seconds"] == 1.2
    metrics.role(False, 7)
    assert (shown(metrics)["submission_leader"], shown(metrics)["submission_queue_depth"]) == (0, 0)


def test_two_instances_in_one_process_count_apart():
    one, other = Metrics(), Metrics()
    one.created()
    assert shown(other)["submission_intents_created_total"] == 0
