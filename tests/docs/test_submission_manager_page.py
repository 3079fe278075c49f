"""docs/submission-manager.md names every setting with its default, every metric and every route, and no other."""

import re
from pathlib import Path

from submission_manager.http.requests import wait_seconds
from submission_manager.metrics import ANSWERS, Metrics
from submission_manager.model.contracts import TAXONOMY
from submission_manager.settings import SETTINGS

OTHER_DEFAULTS = {"durable": "as set", "holder_id": "host-pid-random", "max_connections": "by open files"}
PAGE = (Path(__file__).parents[2] / "docs" / "submission-manager.md").read_text("utf-8")


def test_every_setting_is_there_with_its_variable_and_its_default() -> None:
    rows = {
        row[0]: row[1:] for row in re.findall(r"^\| `(--[a-z-]+)` \| `(\w+)` \| `?([^|`]+?)`? \|", PAGE, re.MULTILINE)
    }
    assert rows == {one.option: (one.variable, one.default or OTHER_DEFAULTS[one.name]) for one in SETTINGS}


def test_every_reason_that_a_gateway_may_reject_for_is_in_the_table_of_the_registry() -> None:
    (row,) = [line for line in PAGE.splitlines() if line.startswith("| `terminalOutcomes`")]
    told = {kind: re.findall(r"`(\w+)`", words) for kind, words in re.findall(r"or `(sms|push)`: ([^;|]*)", row)}
    assert told == {kind.value: sorted(reasons) for kind, reasons in TAXONOMY.items()}


def test_every_metric_is_there_and_no_other() -> None:
    helped = re.findall(r"^# HELP (\w+)", Metrics().exposition()[0].decode(), re.MULTILINE)
    named = re.findall(r"^\| `(submission_\w+)` \|", PAGE, re.MULTILINE)
    assert sorted(named) == sorted(name for name in helped if not name.endswith("_created"))


def test_the_longest_wait_is_the_one_that_a_request_gets() -> None:
    longest = wait_seconds(b"waitSeconds=99")
    (paragraph,) = [text for text in PAGE.split("\n\n") if text.startswith("`waitSeconds`")]
    assert f"no wait is longer than {longest:g} s" in " ".join(paragraph.split())


def test_every_warning_of_the_log_is_in_the_table_for_the_night() -> None:
    night = PAGE.partition("## At three in the morning")[2]
    new = {"deadlines_missed", "variable_unknown", "leader_release_failed", "attempts_cut", "request_failed"}
    new |= {"lease_row_locked", "outcomes_unknown", "intent_parked", "leadership_paused", "attempt_fenced_out"}
    new |= {"retry_delay_long", "variable_ignored"}
    assert {event for event in new if f"`{event}`" not in night} == set()


def test_every_alert_is_in_the_table_for_the_night() -> None:
    night = PAGE.partition("## At three in the morning")[2]
    rules = (Path(__file__).parents[2] / "deploy" / "prometheus" / "rules.yaml").read_text("utf-8")
    alerts = set(re.findall(r"alert: (\w+)", rules))
    assert "SubmissionRequestsFail" in alerts
    assert {alert for alert in alerts if f"`{alert}`" not in night} == set()


def test_every_code_of_503_is_in_the_table_of_routes() -> None:
    (row,) = [line for line in PAGE.splitlines() if line.startswith("| `POST /v1/intents")]
    assert {reason for status, reason in ANSWERS if status == 503 and f"`{reason}`" not in row} == set()


def test_every_route_is_there() -> None:
    from submission_manager.http.openapi import document

    routes = {f"{method.upper()} {path}" for path, methods in document()["paths"].items() for method in methods}
    told = {route.partition("[")[0] for route in re.findall(r"^\| `((?:GET|POST) [^`]+)` \|", PAGE, re.MULTILINE)}
    assert told == {route.replace("{intentId}", "{id}") for route in routes}
