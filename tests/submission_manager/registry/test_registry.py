"""The registry file: what it may say, and that every problem is told at once with its place."""

import json
from pathlib import Path
from typing import Any

import pytest

from submission_manager.model.contracts import GatewayType, Policy, Webhook
from submission_manager.registry.registry import BadRegistry, load, parse

SAMPLE = """
# Realtime targets
{
  "allowUnsignedWebhooks": false,
    # both with a deadline
  "targets": [
    {"submissionTarget": "sms.realtime", "gatewayType": "sms", "gatewayUrl": "http://localhost:9090",
     "policy": "deadline", "maxAcceptanceSeconds": 30,
     "terminalOutcomes": ["invalid_request", "invalid_recipient", "invalid_message"],
     "webhook": {"url": "https://example.com/hook", "headers": {"X-A": "#1"}, "headersEnv": {"X-B": "TOKEN"},
                 "secretEnv": "SECRET"}},
    {"submissionTarget": "push.realtime", "gatewayType": "push", "gatewayUrl": "https://push.example.com/base/",
     "policy": "deadline", "maxAcceptanceSeconds": 30, "terminalOutcomes": ["invalid_request", "unregistered_token"]}
  ]
}
"""


def target(**changes: Any) -> dict[str, Any]:
    base = {
        "submissionTarget": "a", "gatewayType": "sms", "gatewayUrl": "http://h", "policy": "one_shot",
        "terminalOutcomes": ["invalid_request"],
    }  # fmt: skip
    return {name: value for name, value in (base | changes).items() if value is not ...}


def hooked(**changes: Any) -> dict[str, Any]:
    base = {"url": "http://h/x", "secretEnv": "S"}
    return target(webhook={name: value for name, value in (base | changes).items() if value is not ...})


def problems(*targets: Any, **top: Any) -> list[str]:
    with pytest.raises(BadRegistry) as caught:
        parse(json.dumps({"targets": list(targets), **top}))
    return caught.value.problems


def places(*targets: Any, **top: Any) -> list[str]:
    return [problem.partition(": ")[0] for problem in problems(*targets, **top)]


def test_the_sample_is_read_with_its_comments():
    registry = parse(SAMPLE)
    sms = registry.contracts["sms.realtime"]
    assert sms is not None
    assert (sms.gateway_type, sms.policy, sms.max_acceptance_seconds) == (GatewayType.SMS, Policy.DEADLINE, 30)
    assert sms.terminal_outcomes == ("invalid_request", "invalid_recipient", "invalid_message")
    assert sms.webhook == Webhook("https://example.com/hook", {"X-A": "#1"}, {"X-B": "TOKEN"}, "SECRET")
    assert "SMS.realtime" not in registry.contracts


def test_how_a_target_waits_is_read_beside_its_contract_and_left_out_means_neither():
    plain = target(submissionTarget="plain")
    urgent = target(submissionTarget="urgent", priority=9, maxBacklog=1500)
    registry = parse(json.dumps({"targets": [plain, urgent]}))
    assert registry.priorities == {"urgent": 9}
    assert registry.backlogs_max == {"urgent": 1500}


WRONG = [
    (target(submissionTarget=" a"), "targets[0].submissionTarget"),
    (target(submissionTarget=""), "targets[0].submissionTarget"),
    (target(gatewayType="fax"), "targets[0].gatewayType"),
    (target(gatewayUrl="ftp://h"), "targets[0].gatewayUrl"),
    (target(gatewayUrl="http://"), "targets[0].gatewayUrl"),
    (target(gatewayUrl="http://h:99999"), "targets[0].gatewayUrl"),
    (target(gatewayUrl="http://h?x=1"), "targets[0].gatewayUrl"),
    (target(policy="always"), "targets[0].policy"),
    (target(policy="deadline"), "targets[0].maxAcceptanceSeconds"),
    (target(policy="max_attempts"), "targets[0].maxAttempts"),
    (target(policy="max_attempts", maxAttempts=0), "targets[0].maxAttempts"),
    (target(policy="max_attempts", maxAttempts=True), "targets[0].maxAttempts"),
    (target(policy="deadline", maxAcceptanceSeconds=1.5), "targets[0].maxAcceptanceSeconds"),
    (target(maxAttempts=3), "targets[0].maxAttempts"),
    (target(policy="deadline", maxAcceptanceSeconds=1, maxAttempts=3), "targets[0].maxAttempts"),
    (target(terminalOutcomes=[]), "targets[0].terminalOutcomes"),
    (target(priority=-1), "targets[0].priority"),
    (target(priority=10), "targets[0].priority"),
    (target(priority=True), "targets[0].priority"),
    (target(priority=None), "targets[0].priority"),
    (target(maxBacklog=0), "targets[0].maxBacklog"),
    (target(maxBacklog="1000"), "targets[0].maxBacklog"),
    (target(maxBacklog=None), "targets[0].maxBacklog"),
    (target(terminalOutcomes=...), "targets[0].terminalOutcomes"),
    (target(terminalOutcomes=["accepted"]), "targets[0].terminalOutcomes[0]"),
    (target(terminalOutcomes=["invalid_request", "unregistered_token"]), "targets[0].terminalOutcomes[1]"),
    (target(terminalOutcomes=["invalid_request", "invalid_request"]), "targets[0].terminalOutcomes[1]"),
    (target(extra=1), "targets[0].extra"),
    (target(webhook=None), "targets[0].webhook"),
    (hooked(url="nowhere"), "targets[0].webhook.url"),
    (hooked(secretEnv=...), "targets[0].webhook.secretEnv"),
    (hooked(secretEnv="not a name"), "targets[0].webhook.secretEnv"),
    (hooked(header={}), "targets[0].webhook.header"),
    (hooked(headers={"X-A": "1\r\n2"}), "targets[0].webhook.headers.X-A"),
    (hooked(headers={"Content-Length": "1"}), "targets[0].webhook.headers.Content-Length"),
    (hooked(headers={"content-type": "text/plain"}), "targets[0].webhook.headers.content-type"),
    (hooked(headersEnv={"X-Setu-Signature": "V"}), "targets[0].webhook.headersEnv.X-Setu-Signature"),
    (hooked(headers={"X-A": "1"}, headersEnv={"x-a": "V"}), "targets[0].webhook.headersEnv.x-a"),
    (hooked(headersEnv={"X-A": 3}), "targets[0].webhook.headersEnv.X-A"),
    ("text", "targets[0]"),
]


@pytest.mark.parametrize(("wrong", "place"), WRONG, ids=[place for _, place in WRONG])
def test_a_problem_is_told_with_its_place_and_nothing_else(wrong, place):
    assert places(wrong) == [place]


def test_all_problems_are_told_at_once():
    found = places(target(policy="x", gatewayUrl=3), target(), target(), 7, targetz=[], allowUnsignedWebhooks="no")
    assert found == [
        "targetz", "allowUnsignedWebhooks", "targets[0].gatewayUrl", "targets[0].policy", "targets[3]",
        "targets[1].submissionTarget", "targets[2].submissionTarget",
    ]  # fmt: skip


def test_unsigned_webhooks_need_to_be_allowed():
    assert "a" in parse(json.dumps({"allowUnsignedWebhooks": True, "targets": [hooked(secretEnv=...)]})).contracts


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "line 1"),
        ('{"targets": []}', "targets"),
        ("[]", "must be an object"),
        (SAMPLE + "{}", "line 16 column 1: Extra data"),
        (SAMPLE.replace("30,", "NaN,", 1), "targets[0].maxAcceptanceSeconds: NaN"),
        (SAMPLE.replace("30,", "9" * 5000 + ",", 1), "targets[0].maxAcceptanceSeconds: a number of 5000 digits"),
        (SAMPLE.replace('"policy": "deadline"', '"policy": "deadline", "policy": "one_shot"', 1), "targets[0].policy:"),
        ("[" * 100_000, ""),
    ],
)
def test_what_is_no_registry_is_refused_in_words(text, says):
    with pytest.raises(BadRegistry) as caught:
        parse(text)
    assert says in caught.value.problems[0]
    assert caught.value.code == "bad_registry"


def test_a_password_in_a_url_is_not_shown():
    assert "hunter2" not in str(problems(target(gatewayUrl="ftp://u:hunter2@h"))[0])


def test_a_file_that_cannot_be_read_is_told(tmp_path: Path):
    with pytest.raises(BadRegistry, match="No such file"):
        load(tmp_path / "none.json")
    (tmp_path / "latin.json").write_bytes(b'{"targets": "\xe9"}')
    with pytest.raises(BadRegistry, match="UTF-8"):
        load(tmp_path / "latin.json")
