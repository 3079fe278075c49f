"""What clients are refused for is counted, and /readyz says why; what the database answers ends its silence."""

import pytest

from fencehold.model.errors import ConfigurationError, FenceholdError, LeaseLost, Unavailable, Uncertain
from submission_manager.answers import Answers
from submission_manager.http import probes
from tests.submission_manager.http.parts import Running, running, until

NO_RIGHT = ConfigurationError("permission denied for table submission_intents", code="no_permission")


async def line(service: Running) -> str:
    answer = await service.client.get("/readyz")
    assert answer.status_code == 200
    return answer.text


def counted(service: Running) -> dict[str, float]:
    lines = service.metrics.exposition()[0].decode().splitlines()
    found = dict(one.rsplit(" ", 1) for one in lines if one.startswith("submission_requests_total{"))
    return {series: float(value) for series, value in found.items() if float(value)}


# Counted


async def test_requests_are_counted_by_status_and_reason_and_probes_are_not():
    async with running() as service:
        await service.submit("a")
        await service.submit("a", payload=1)
        await service.client.get("/v1/intents/none")
        for fault in (Unavailable("gone"), Uncertain("no answer"), NO_RIGHT, RuntimeError("ours")):
            service.intake.trouble = fault
            await service.submit("b")
        for path in ("/readyz", "/healthz", "/metrics", "/leaderz"):
            await service.client.get(path)
        series = 'submission_requests_total{{reason="{}",status="{}"}}'
        assert counted(service) == {
            series.format(reason, status): 1.0
            for status, reason in (
                (200, "ok"), (409, "idempotency_conflict"), (404, "not_found"), (503, "database_unavailable"),
                (503, "database_uncertain"), (503, "not_ready"), (500, "internal_error"),
            )
        }  # fmt: skip


async def test_what_keeps_an_instance_from_leading_is_a_metric_too(monkeypatch):
    monkeypatch.setattr(probes, "LOOK_EVERY_S", 0.001)
    async with running() as service:
        service.metrics.watch_cannot_lead(service.app.cannot_lead)
        assert "\nsubmission_cannot_lead 0.0\n" in service.metrics.exposition()[0].decode()
        service.intake.rights = ["INSERT on submission_attempts"]
        await until(lambda: service.app.cannot_lead() is not None)
        assert "\nsubmission_cannot_lead 1.0\n" in service.metrics.exposition()[0].decode()
        text = await line(service)
        assert "cannot_lead=[no_permission]_no_INSERT_on_submission_attempts" in text
        assert "posts_fail" not in text, "it still takes intents"


# Why submissions fail


async def test_what_makes_submissions_fail_is_named_until_one_succeeds():
    async with running() as service:
        service.intake.trouble = NO_RIGHT
        await service.client.get("/v1/intents/a")
        assert "posts_fail" not in await line(service), "that was no submission"
        assert (await service.submit("a")).status_code == 503
        assert "posts_fail=[no_permission]_permission_denied_for_table_submission_intents" in await line(service)
        service.intake.trouble = None
        assert (await service.submit("a")).status_code == 200
        assert await line(service) == "mode=follower holder_id=sm-01\n"


async def test_a_right_that_submissions_need_is_named_before_anybody_submits(monkeypatch):
    monkeypatch.setattr(probes, "LOOK_EVERY_S", 0.001)
    async with running() as service:
        service.intake.rights = ["INSERT on submission_intents", "UPDATE on submission_manager_leases"]
        await until(lambda: service.app.cannot_lead() is not None)
        assert "posts_fail=[no_permission]_no_INSERT_on_submission_intents\n" in await line(service)


async def test_a_failure_of_long_ago_says_nothing_of_the_next_submission(monkeypatch):
    async with running() as service:
        service.intake.trouble = Unavailable("gone")
        await service.submit("a")
        assert "posts_fail" in await line(service)
        monkeypatch.setattr("submission_manager.http.app.FRESH_S", 0.0)
        assert "posts_fail" not in await line(service)


# Silence


async def test_any_answer_ends_the_databases_silence_at_once():
    async with running() as service:
        service.intake.trouble = Unavailable("gone", code="unreachable")
        await service.client.get("/v1/intents/a")
        assert "database_silent_s=" in await line(service)
        service.intake.trouble = None
        await service.client.get("/v1/intents/a")
        assert "database_silent_s=" not in await line(service)


async def test_an_error_that_the_database_says_itself_is_no_silence():
    async with running() as service:
        for fault in (NO_RIGHT, Unavailable("full", code="too_many_connections"), Unavailable("x", code="locked")):
            service.intake.trouble = fault
            await service.client.get("/v1/intents/a")
            assert "database_silent_s=" not in await line(service)


async def failing(error: FenceholdError) -> None:
    raise error


async def answering() -> str:
    return "yes"


async def test_a_call_that_is_given_up_late_begins_no_silence_if_others_were_answered_meanwhile():
    now_s = [100.0]
    answers = Answers(lambda: now_s[0])

    async def given_up() -> None:
        now_s[0] += 5
        await answers.of(answering())
        raise Uncertain("given up", code="no_answer")

    with pytest.raises(Uncertain):
        await answers.of(given_up())
    assert answers.silent_s() is None
    now_s[0] += 1
    with pytest.raises(Unavailable):
        await answers.of(failing(Unavailable("gone", code="unreachable")))
    now_s[0] += 3
    assert answers.silent_s() == 3


@pytest.mark.parametrize(
    ("event", "fields"),
    [("leader_renewed", {}), ("leader_acquire_failed", {"held_by": "b"}), ("store_answers", {"waited_s": 1})],
)
async def test_what_the_lease_hears_ends_the_silence_too(event, fields):
    answers = Answers()
    answers.unanswered(answers.last_s + 1)
    assert answers.silent_s() is not None
    answers.fact("leader_acquire_failed", sql_error="[unreachable] gone")
    for error in (LeaseLost("ours"), Unavailable("nothing was sent", code="busy")):
        with pytest.raises(FenceholdError):
            await answers.of(failing(error))
    assert answers.silent_s() is not None
    answers.fact(event, **fields)
    assert answers.silent_s() is None
