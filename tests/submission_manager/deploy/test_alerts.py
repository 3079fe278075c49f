"""The alerts of deploy/prometheus, evaluated by Prometheus's own promtool on the series of rules_test.yaml."""

import subprocess
from pathlib import Path

import pytest
import yaml

from submission_manager.executor.backlog import LATE_S
from submission_manager.metrics import Metrics
from tests.servers.programs import require

HERE = Path(__file__).parent
RULES = HERE.parents[2] / "deploy" / "prometheus" / "rules.yaml"
CASES = HERE / "rules_test.yaml"


def promtool(*arguments: str | Path) -> str:
    done = subprocess.run(
        [require("promtool"), *arguments], cwd=HERE, capture_output=True, text=True, timeout=50, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.needs("promtool")
def test_prometheus_takes_the_rules_as_they_stand() -> None:
    assert "SUCCESS" in promtool("check", "rules", RULES)


@pytest.mark.needs("promtool")
def test_each_alert_fires_for_what_it_is_there_for_and_a_healthy_service_is_quiet() -> None:
    assert "SUCCESS" in promtool("test", "rules", CASES)


def test_no_alert_is_without_a_case_in_which_it_fires() -> None:
    groups = yaml.safe_load(RULES.read_text("utf-8"))["groups"]
    alerts = {rule["alert"] for group in groups for rule in group["rules"]}
    cases = {case["name"]: case["promql_expr_test"] for case in yaml.safe_load(CASES.read_text("utf-8"))["tests"]}
    fires = {name for name, tests in cases.items() if any(name in str(test["exp_samples"]) for test in tests)}
    assert alerts - fires == set()
    assert {"SubmissionGatewayFails", "SubmissionNothingEnds", "SubmissionIntentsOverdue"} <= alerts


def test_an_alert_on_intents_that_do_not_end_claims_no_longer_time_than_they_have_been_pending() -> None:
    rules = {rule["alert"]: rule for rule in yaml.safe_load(RULES.read_text("utf-8"))["groups"][0]["rules"]}
    rule = rules["SubmissionNothingEnds"]
    assert rule["for"] == "5m"
    assert "pending for five minutes or more" in rule["annotations"]["summary"]


def test_overdue_means_the_same_to_the_leader_the_metric_and_the_alert() -> None:
    seconds = f"{LATE_S} s"
    help_lines = [line for line in Metrics().exposition()[0].decode().splitlines() if "submission_overdue" in line]
    rules = {rule["alert"]: rule for rule in yaml.safe_load(RULES.read_text("utf-8"))["groups"][0]["rules"]}
    assert seconds in help_lines[0]
    assert seconds in rules["SubmissionIntentsOverdue"]["annotations"]["summary"]
