"""/v1/intents on a real port, with a store in memory."""

import asyncio
import datetime as dt
import json
from typing import Any

import pytest

from fencehold.model.errors import ConfigurationError, Unavailable, Uncertain
from submission_manager.http import app
from submission_manager.model.intents import Attempt, Intent, Status
from tests.submission_manager.http.parts import Running, running, until

SENT = '{"intentId":"%s","submissionTarget":"sms.realtime"%s}'


async def test_a_new_intent_is_answered_as_pending_with_a_time_in_utc():
    async with running() as service:
        answer = await service.submit("order-7", payload={"to": "1"})
        assert answer.status_code == 200
        body = answer.json()
        assert dt.datetime.fromisoformat(body.pop("createdAt")).utcoffset() == dt.timedelta(0)
        assert body == {"intentId": "order-7", "submissionTarget": "sms.realtime", "status": "pending"}


async def test_the_payload_is_kept_byte_for_byte_and_absent_differs_from_null():
    odd = b'{ "b":1.00e+2,"a" : "\xc3\xa9\\u00e9\\/" ,\n"b":2}'
    async with running() as service:
        for intent_id, tail in (("x", b',"payload":' + odd), ("y", b',"payload": null'), ("z", b"")):
            body = b'{"intentId":"%s","submissionTarget":"sms.realtime"%s}' % (intent_id.encode(), tail)
            assert (await service.client.post("/v1/intents", content=body)).status_code == 200
        assert [service.intake.rows[one][1] for one in "xyz"] == [odd, b"null", None]


async def test_the_same_submission_again_is_a_hit_and_another_is_a_conflict():
    async with running() as service:
        first = await service.submit("a", payload={"n": 1})
        again = await service.submit(" a ", payload={"n": 1})
        assert (again.status_code, again.json()) == (200, first.json())
        other = await service.submit("a", payload={"n": 2}, submissionTarget="push.realtime")
        assert other.status_code == 409
        assert other.json()["error"]["code"] == "idempotency_conflict"
        assert other.json()["error"]["details"] == {
            "intentId": "a", "existingTarget": "sms.realtime", "incomingTarget": "push.realtime",
        }  # fmt: skip
        counted = (await service.client.get("/metrics")).text
        assert "submission_intents_created_total 1.0" in counted
        assert "submission_idempotent_hits_total 1.0" in counted
        assert "submission_idempotency_conflicts_total 1.0" in counted


async def test_ids_that_differ_in_case_are_two_intents():
    async with running() as service:
        await service.submit("Order")
        await service.submit("order")
        assert set(service.intake.rows) == {"Order", "order"}


REFUSED = {
    "nothing": b"",
    "no json": b"{",
    "no object": b"[]",
    "trailing data": SENT.encode() % (b"a", b"") + b" {}",
    "no id": b'{"submissionTarget":"sms.realtime"}',
    "id of another type": b'{"intentId":7,"submissionTarget":"sms.realtime"}',
    "id null": b'{"intentId":null,"submissionTarget":"sms.realtime"}',
    "blank id": SENT.encode() % (b" \\t ", b""),
    "id too long": SENT.encode() % (b"x" * 201, b""),
    "id with NUL": SENT.encode() % (b"a\\u0000b", b""),
    "id with half a surrogate": SENT.encode() % (b"a\\ud800", b""),
    "unknown field": SENT.encode() % (b"a", b',"payLoad":1'),
    "unknown target": b'{"intentId":"a","submissionTarget":"nowhere"}',
    "id twice": SENT.encode() % (b"a", b',"intentId":"b"'),
    "id twice, once in disguise": SENT.encode() % (b"a", b',"\\u0069ntentId":"b"'),
    "payload twice": SENT.encode() % (b"a", b',"payload":1,"payload":1'),
    "payload not utf-8": SENT.encode() % (b"a", b',"payload":"\xff"'),
    "payload malformed": SENT.encode() % (b"a", b',"payload":{"a":}'),
    "payload too deep": SENT.encode() % (b"a", b',"payload":' + b"[" * 100_000 + b"]" * 100_000),
}


async def test_what_is_not_a_submission_is_refused_with_a_code_and_nothing_is_stored():
    async with running() as service:
        for what, body in REFUSED.items():
            answer = await service.client.post("/v1/intents", content=body)
            assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_request"), what
            assert answer.json()["error"]["message"], what
        assert service.intake.rows == {}


@pytest.mark.parametrize(
    ("payload", "words"),
    [
        (b'"\\ud800"', "surrogate"),
        (b"[" * 100_000 + b"]" * 100_000, "nested too deeply"),
        (b'{"a":}', "malformed"),
    ],
    ids=["half a pair", "deep", "malformed"],
)
async def test_a_payload_that_cannot_be_taken_is_told_why(payload, words):
    async with running() as service:
        answer = await service.client.post("/v1/intents", content=SENT.encode() % (b"a", b',"payload":' + payload))
        assert answer.status_code == 400
        assert words in answer.json()["error"]["message"]


async def test_a_number_of_any_length_is_a_payload_like_any_other():
    async with running() as service:
        for n, payload in enumerate((b"9" * 5000, b'["\\n",' + b"9" * 5000 + b"]")):
            body = SENT.encode() % (b"n%d" % n, b',"payload":' + payload)
            assert (await service.client.post("/v1/intents", content=body)).status_code == 200
            assert service.intake.rows[f"n{n}"][1] == payload


async def test_a_field_name_inside_the_payload_is_not_a_duplicate():
    async with running() as service:
        assert (await service.submit("a", payload={"intentId": 1, "payload": "\\"})).status_code == 200


@pytest.mark.parametrize("wait", ["-1", "1.5", "x", "", "1&waitSeconds=2", "٣"])
async def test_a_wait_that_is_no_whole_number_is_refused_before_anything_is_stored(wait):
    async with running() as service:
        answer = await service.submit("a", f"?waitSeconds={wait}")
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_request")
        assert service.intake.rows == {}


async def test_a_wait_ends_at_the_first_attempt_and_all_waits_share_one_look():
    async with running() as service:
        waits = [asyncio.create_task(service.submit(f"w{n}", "?waitSeconds=999")) for n in range(20)]
        await until(lambda: any(len(look) == 20 for look in service.intake.looks))
        for n in range(19):
            service.intake.change(f"w{n}", attempt_count=1)
        now = dt.datetime.now(dt.UTC)
        service.intake.change("w19", status=Status.ACCEPTED, completed_at=now)
        answers = [(await wait).json() for wait in waits]
        assert [answer["status"] for answer in answers] == ["pending"] * 19 + ["accepted"]
        assert "completedAt" in answers[19]
        looks = len(service.intake.looks)
        await service.submit("more")
        assert len(service.intake.looks) == looks


async def test_a_wait_ends_in_time_also_without_a_database():
    async with running() as service:
        await service.submit("a")
        waiting = asyncio.create_task(service.submit("a", "?waitSeconds=1"))
        await until(lambda: bool(service.intake.looks))
        service.intake.trouble = Unavailable("gone")
        answer = await waiting
        assert (answer.status_code, answer.json()["status"]) == (200, "pending")


async def test_an_intent_already_attempted_is_not_waited_for():
    async with running() as service:
        await service.submit("a")
        service.intake.change("a", attempt_count=1)
        assert (await service.submit("a", "?waitSeconds=30")).status_code == 200
        assert service.intake.looks == []


async def test_the_longest_wait_ends_before_a_proxy_gives_up():
    from submission_manager.http.requests import wait_seconds

    assert wait_seconds(b"waitSeconds=30") == wait_seconds(b"waitSeconds=99999999") < 30
    assert wait_seconds(b"waitSeconds=3&x=1") == 3
    assert wait_seconds(b"waitSeconds=" + b"9" * 5000) == wait_seconds(b"waitSeconds=30")
    assert wait_seconds(b"waitSeconds=" + b"0" * 5000 + b"7") == 7
    assert wait_seconds(b"x=1") == 0


async def test_an_intent_and_its_history_are_read_by_any_id_a_client_may_choose():
    async with running() as service:
        for intent_id in ("plain", "a/b", "x/history", "50%", "ü ñ", "?#"):
            await service.submit(intent_id)
            path = "/v1/intents/" + "".join(f"%{byte:02x}" for byte in intent_id.encode())
            assert (await service.client.get(path)).json()["intentId"] == intent_id
            assert (await service.client.get(path + "/history")).json()["attempts"] == []


async def test_history_tells_attempts_and_leaves_out_what_is_empty():
    when = dt.datetime(2026, 2, 2, 12, tzinfo=dt.timezone(dt.timedelta(hours=2)))
    async with running() as service:
        await service.submit("a")
        service.intake.change("a", status=Status.REJECTED, completed_at=when, rejected_reason="invalid_recipient")
        service.intake.attempts["a"] = [
            Attempt(1, when, when, error="gateway answered 502"),
            Attempt(2, when, when, "rejected", "invalid_recipient"),
        ]
        body = (await service.client.get("/v1/intents/a/history")).json()
        at = "2026-02-02T10:00:00Z"
        assert body["attempts"] == [
            {"attemptNumber": 1, "startedAt": at, "finishedAt": at, "error": "gateway answered 502"},
            {"attemptNumber": 2, "startedAt": at, "finishedAt": at, "outcomeStatus": "rejected",
             "outcomeReason": "invalid_recipient"},
        ]  # fmt: skip
        assert body["intent"]["rejectedReason"] == "invalid_recipient"
        assert "exhaustedReason" not in body["intent"]


async def test_an_unknown_intent_is_404_and_database_trouble_is_503():
    async with running() as service:
        for path in ("/v1/intents/none", "/v1/intents/none/history", "/v1/intents/" + "x" * 500, "/v1/intents/%00"):
            answer = await service.client.get(path)
            assert (answer.status_code, answer.json()["error"]["code"]) == (404, "not_found"), path
        for fault, code in (
            (Unavailable("postgresql://u:hunter2@db refused"), "database_unavailable"),
            (Unavailable("a replica", code="read_only"), "database_unavailable"),
            (Uncertain("no answer"), "database_uncertain"),
            (ConfigurationError("no tables"), "not_ready"),
        ):
            service.intake.trouble = fault
            answers = read, write = await service.client.get("/v1/intents/none"), await service.submit("b")
            assert "send it again" not in read.text.lower()
            assert ("send it again" in write.text.lower()) == (code == "database_uncertain")
            assert ("read-only" in write.text) == (fault.code == "read_only")
            for answer in answers:
                assert (answer.status_code, answer.json()["error"]["code"]) == (503, code)
                assert "hunter2" not in answer.text
        assert "hunter2" not in json.dumps(service.facts.told)
        told = [fields for event, fields in service.facts.told if event == "request_failed"]
        assert 0 < len(told) < 8  # of eight failed requests: not a line for each


async def test_a_database_that_stays_away_is_told_of_at_once_and_then_now_and_then_with_how_many(monkeypatch):
    monkeypatch.setattr(app, "LOG_EVERY_S", 0.3)
    async with running() as service:
        service.intake.trouble = Unavailable("gone")
        for _ in range(20):
            assert (await service.submit("a")).status_code == 503
        service.intake.trouble = None
        assert (await service.submit("a")).status_code == 200
        await until(lambda: sum(failed(service)) == 20)  # the rest too, without another outage
        assert failed(service)[0] == 1
        assert len(failed(service)) < 10


def failed(service: Running) -> list[int]:
    return [fields["requests"] for event, fields in service.facts.told if event == "request_failed"]


async def test_a_repeat_with_other_white_space_is_told_that_its_bytes_differ():
    async with running() as service:
        for payload, status in ((b'{"a": 1}', 200), (b'{"a":1}', 409)):
            body = b'{"intentId":"x","submissionTarget":"sms.realtime","payload":%s}' % payload
            answer = await service.client.post("/v1/intents", content=body)
            assert answer.status_code == status
        assert "byte for byte" in answer.json()["error"]["message"]


async def test_a_fault_of_ours_is_500_and_told_to_the_log_only():
    async with running() as service:
        service.intake.trouble = ZeroDivisionError("secret detail")
        answer = await service.submit("a")
        assert (answer.status_code, answer.json()["error"]["code"]) == (500, "internal_error")
        assert "secret" not in answer.text
        assert service.facts.told[0][0] == "internal_error"


async def test_other_methods_and_other_paths_are_refused_as_json():
    async with running() as service:
        answer = await service.client.get("/v1/intents")
        assert (answer.status_code, answer.headers["allow"]) == (405, "POST")
        assert answer.json()["error"]["code"] == "method_not_allowed"
        assert (await service.client.delete("/v1/intents/a")).status_code == 405
        for path in ("/", "/v1", "/v1/intents/", "/v1/intents/a/b/c", "/readyz/"):
            answer = await service.client.get(path)
            assert (answer.status_code, answer.json()["error"]["code"]) == (404, "not_found"), path


async def test_a_repeat_is_a_hit_even_when_its_target_has_left_the_registry():
    async with running() as service:
        stored = Intent("a", "gone", dt.datetime.now(dt.UTC), Status.PENDING, 0)
        service.intake.rows["a"] = (stored, b"1")
        answer = await service.submit("a", submissionTarget="gone", payload=1)
        assert (answer.status_code, answer.json()["intentId"]) == (200, "a")
        others: tuple[dict[str, Any], ...] = ({"payload": 2}, {})
        for again in others:
            answer = await service.submit("a", submissionTarget="gone", **again)
            assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_request")
