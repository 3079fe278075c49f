"""The names and buckets dashboards are built on."""

import math

from submission_manager.metrics import GATEWAYS_MAX, TARGETS_MAX, Metrics
from submission_manager.model.intents import Backlog

COUNTERS = {
    "submission_intents_created_total", "submission_idempotent_hits_total", "submission_idempotency_conflicts_total",
    'submission_intents_terminal_total{status="accepted"}', 'submission_exhausted_total{reason="deadline_exceeded"}',
    'submission_attempts_total{outcome_status="rejected"}', "submission_retries_scheduled_total",
    'submission_fenced_out_writes_total{write="record"}', "submission_lease_renewals_total",
    "submission_lease_renewals_failed_total",
}  # fmt: skip
GAUGES = {
    "submission_queue_depth", "submission_inflight_attempts", "submission_leader", "submission_lease_epoch",
    "submission_schedule_refresh_lag_seconds", "submission_overdue_intents", "submission_oldest_due_seconds",
    "submission_past_deadline_intents",
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
    metrics.role(True, 7)
    metrics.queue_depth.set(5)
    metrics.attempt("accepted", 0.2)
    metrics.ended("sms", "accepted", None, 1.5)
    metrics.fenced_out.labels("record").inc()
    metrics.refreshed(3, 0.01, 1.2)
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


def test_what_waits_is_unknown_when_the_database_did_not_say_and_nothing_on_a_follower():
    metrics = Metrics()
    names = ("submission_overdue_intents", "submission_oldest_due_seconds", "submission_past_deadline_intents")
    metrics.backlog(Backlog(7, 61.5, 2))
    assert [shown(metrics)[name] for name in names] == [7, 61.5, 2]
    metrics.backlog(None)
    assert all(math.isnan(shown(metrics)[name]) for name in names)
    metrics.role(False, 1)
    assert [shown(metrics)[name] for name in names] == [0, 0, 0]


def test_gateways_are_counted_apart_from_0_on_and_beyond_so_many_together():
    metrics = Metrics()
    metrics.open_gateways(["http://a", "http://a"])
    series = 'submission_gateway_attempts_total{gateway="http://%s",outcome="failed"}'
    assert shown(metrics)[series % "a"] == 0
    for number in range(GATEWAYS_MAX + 50):
        metrics.gateway_call(f"http://g{number}", "failed", 0.1)
    found = {
        name: value for name, value in shown(metrics).items() if name.startswith("submission_gateway_attempts_total")
    }
    assert found[series % "g1"] == 1
    assert found['submission_gateway_attempts_total{gateway="other",outcome="failed"}'] == 51
    assert len(found) == 3 * (GATEWAYS_MAX + 1)


def test_targets_are_counted_apart_from_0_on_and_beyond_so_many_together():
    metrics = Metrics()
    metrics.open_targets(["sms"])
    late = 'submission_accepted_late_total{target="sms"}'
    given_up = 'submission_target_exhausted_total{reason="deadline_exceeded",target="%s"}'
    assert (shown(metrics)[late], shown(metrics)[given_up % "sms"]) == (0, 0)
    metrics.accepted_late("sms")
    metrics.ended("sms", "accepted", None, 1.0)
    for number in range(TARGETS_MAX + 50):
        metrics.ended(f"t{number}", "exhausted", "deadline_exceeded", 1.0)
    found = shown(metrics)
    assert (found[late], found[given_up % "sms"], found[given_up % "t1"], found[given_up % "other"]) == (1, 0, 1, 51)
    assert found['submission_target_terminal_total{status="accepted",target="sms"}'] == 1
    assert sum(name.startswith("submission_target_terminal_total") for name in found) == 3 * (TARGETS_MAX + 1)


def test_an_attempt_of_unknown_outcome_is_counted_and_not_timed():
    metrics = Metrics()
    metrics.attempt("unknown", None)
    found = shown(metrics)
    assert found['submission_attempts_total{outcome_status="unknown"}'] == 1
    assert found["submission_attempt_duration_seconds_count"] == 0


def test_two_instances_in_one_process_count_apart():
    one, other = Metrics(), Metrics()
    one.created.inc()
    assert shown(other)["submission_intents_created_total"] == 0
