"""Every write of the executor is fenced, judged by the database's clock, and leaves no attempt uncounted."""

import datetime as dt

import pytest

from fencehold import LeaseLost, Uncertain
from submission_manager.model.contracts import Policy
from submission_manager.model.intents import ERROR_CHARS_MAX, REASON_CHARS_MAX, Attempt, Exhausted, Intent, Status
from submission_manager.model.outcomes import OUTCOME_UNKNOWN, Answer, Outcome
from submission_manager.ports import NotNow, Recorded, Started
from tests.submission_manager.stores.scene import LIMIT_S, ONE_SHOT, SOON, TWICE, Scene, contract, scene

ACCEPTED = Outcome(Answer.ACCEPTED)
TROUBLE = Outcome(Answer.ERROR, error="500")


async def started(at: Scene, term, intent_id: str = "a") -> Started:
    answer = await at.store.attempts.start(term, intent_id, 0.0)
    assert isinstance(answer, Started)
    return answer


def ended(answer: Recorded | NotNow) -> Intent:
    assert answer.over is not None
    return answer.over.intent


async def attempts(at: Scene, intent_id: str = "a") -> list[Attempt]:
    found = await at.store.intake.history(intent_id, LIMIT_S)
    assert found is not None
    return found[1]


async def test_an_accepted_attempt_ends_its_intent_and_leaves_one_record(url):
    async with scene(url) as at:
        term = await at.term()
        await at.submit("a", payload=b'{"to": "1"}')
        _, cursor = await at.rebuilt()
        start = await started(at, term)
        assert (start.key, start.payload, start.contract) == ("a/1", b'{"to": "1"}', ONE_SHOT)
        recorded = await at.store.attempts.record(term, start, ACCEPTED, 5.0)
        intent = ended(recorded)
        assert intent == await at.store.intake.read("a", LIMIT_S)
        assert (intent.status, intent.completed_at) == (Status.ACCEPTED, recorded.finished_at)
        assert await attempts(at) == [Attempt(1, start.started_at, recorded.finished_at, "accepted")]
        rows, _ = await at.refreshed(cursor)
        assert [(row.intent_id, row.due_at) for row in rows] == [("a", None)]
        assert (await at.rebuilt())[0] == []
        assert await at.store.attempts.start(term, "a", 5.0) == NotNow(Status.ACCEPTED)


async def test_the_contract_that_is_executed_is_the_one_that_was_submitted(url):
    async with scene(url) as at:
        term = await at.term()
        for name, given in {"a": ONE_SHOT, "b": TWICE, "c": SOON}.items():
            await at.submit(name, given, None)
            start = await started(at, term, name)
            assert (start.contract, start.payload) == (given, None)


async def test_a_retry_is_due_when_the_record_says_so_and_not_before(url):
    async with scene(url) as at:
        term = await at.term()
        await at.submit("a", TWICE)
        _, cursor = await at.rebuilt()
        recorded = await at.store.attempts.record(term, await started(at, term), TROUBLE, 600.0)
        assert recorded.due_at is not None
        assert dt.timedelta(seconds=599) < recorded.due_at - recorded.finished_at <= dt.timedelta(seconds=600)
        rows, _ = await at.refreshed(cursor)
        assert rows[-1].due_at == recorded.due_at
        assert await at.store.attempts.start(term, "a", 600.0) == NotNow(Status.PENDING, recorded.due_at)


async def test_the_time_of_a_retry_is_told_as_the_schedule_will_read_it(url):
    async with scene(url) as at:
        term = await at.term()
        await at.submit("a", TWICE)
        recorded = await at.store.attempts.record(term, await started(at, term), TROUBLE, 60.000_777)
        assert recorded.due_at is not None
        assert [row.due_at for row in (await at.rebuilt())[0]] == [recorded.due_at]


async def test_a_rejection_keeps_its_reason_and_a_last_attempt_exhausts(url):
    async with scene(url) as at:
        term = await at.term()
        await at.submit("a", TWICE)
        await at.submit("b", TWICE)
        listed = Outcome(Answer.REJECTED, "invalid_request")
        recorded = await at.store.attempts.record(term, await started(at, term), listed, 0.0)
        assert (recorded.status, ended(recorded).rejected_reason) == (Status.REJECTED, "invalid_request")
        for _ in range(2):
            unlisted = Outcome(Answer.REJECTED, "provider_failure")
            recorded = await at.store.attempts.record(term, await started(at, term, "b"), unlisted, 0.0)
        found = ended(recorded)
        assert found == await at.store.intake.read("b", LIMIT_S)
        assert (found.exhausted_reason, found.rejected_reason, found.attempt_count) == ("max_attempts", None, 2)
        assert at.column("b", "final_outcome_reason") == "provider_failure"


async def test_an_intent_past_its_deadline_is_over_without_an_attempt_and_its_webhook_owed(url):
    async with scene(url) as at:
        term = await at.term()
        await at.submit("a", SOON)
        at.make_old("a")
        answer = await at.store.attempts.start(term, "a", 5.0)
        assert isinstance(answer, NotNow)
        assert (answer.status, ended(answer).exhausted_reason) == (Status.EXHAUSTED, Exhausted.DEADLINE_EXCEEDED)
        assert await attempts(at) == []
        assert await at.store.attempts.owed_webhooks(10, LIMIT_S) == [answer.over]


async def test_a_start_that_an_earlier_leader_left_behind_counts_once(url):
    async with scene(url) as at:
        await at.submit("a", TWICE)
        first = await started(at, await at.term())
        term = await at.take_over()
        answer = await at.store.attempts.start(term, "a", 0.0)
        assert isinstance(answer, NotNow)
        assert (answer.status, answer.unknown_outcome) == (Status.PENDING, True)
        second = await started(at, term)
        assert (second.key, second.attempt_number) == ("a/2", 2)
        recorded = await at.store.attempts.record(term, second, TROUBLE, 0.0)
        assert ended(recorded).exhausted_reason == Exhausted.MAX_ATTEMPTS
        found = await attempts(at)
        assert [(one.attempt_number, one.error) for one in found] == [(1, OUTCOME_UNKNOWN), (2, "500")]
        assert found[0].started_at == first.started_at


async def test_an_attempt_of_unknown_outcome_may_be_the_last(url):
    async with scene(url) as at:
        await at.submit("a", contract(Policy.ONE_SHOT))
        await started(at, await at.term())
        answer = await at.store.attempts.start(await at.take_over(), "a", 5.0)
        assert isinstance(answer, NotNow)
        assert ended(answer) == await at.store.intake.read("a", LIMIT_S)
        assert (answer.status, ended(answer).exhausted_reason) == (Status.EXHAUSTED, Exhausted.ONE_SHOT)


async def test_what_a_stale_leader_starts_or_records_is_refused_and_nothing_is_written(url):
    async with scene(url) as at:
        for name in "ab":
            await at.submit(name, TWICE)
        stale = await at.term()
        start = await started(at, stale)
        await at.take_over()
        before = at.everything()
        assert stale.is_valid, "it does not know yet: the database is the judge"
        with pytest.raises(LeaseLost):
            await at.store.attempts.start(stale, "b", 0.0)
        with pytest.raises(LeaseLost):
            await at.store.attempts.record(stale, start, ACCEPTED, 0.0)
        assert at.everything() == before
        assert not stale.is_valid


async def test_a_record_by_a_leader_who_does_not_know_that_another_leads_is_refused(url):
    async with scene(url) as at:
        await at.submit("a", TWICE)
        stale = await at.term()
        start = await started(at, stale)
        await at.store.attempts.start(await at.take_over(), "a", 0.0)
        before = at.everything()
        with pytest.raises(LeaseLost):
            await at.store.attempts.record(stale, start, ACCEPTED, 0.0)
        assert at.everything() == before


@pytest.mark.parametrize("gone", ["attempt_epoch = NULL", "attempt_epoch = attempt_epoch + 1", "attempt_holder = 'x'"])
async def test_a_record_without_its_own_marker_is_refused_even_inside_the_fence(url, gone):
    async with scene(url) as at:
        await at.submit("a", TWICE)
        term = await at.term()
        start = await started(at, term)
        at.sql(f"UPDATE submission_intents SET {gone}")
        before = at.everything()
        with pytest.raises(LeaseLost):
            await at.store.attempts.record(term, start, ACCEPTED, 0.0)
        assert at.everything() == before
        assert not term.is_valid


async def test_while_an_attempt_is_under_way_no_other_is_started(url):
    async with scene(url) as at:
        await at.submit("a", TWICE)
        term = await at.term()
        start = await started(at, term)
        assert await at.store.attempts.start(term, "a", 0.0) == NotNow(Status.PENDING)
        await at.store.attempts.record(term, start, TROUBLE, 0.0)
        assert (await started(at, term)).attempt_number == 2


async def test_a_start_whose_answer_was_lost_is_the_same_attempt_when_asked_again(url):
    async with scene(url) as at:
        await at.submit("a", TWICE)
        term = await at.term()
        lost = await (await at.another()).attempts.start(term, "a", 0.0)
        assert await started(at, term) == lost


@pytest.mark.parametrize("text", ["x" * 5000, "nul \0 inside", "half a pair \ud800", "\N{GRINNING FACE}" * 3000])
async def test_whatever_a_gateway_says_can_be_recorded(url, text):
    async with scene(url) as at:
        await at.submit("a", TWICE)
        term = await at.term()
        outcome = Outcome(Answer.REJECTED, text, text)
        await at.store.attempts.record(term, await started(at, term), outcome, 0.0)
        (found,) = await attempts(at)
        assert found.outcome_reason is not None
        assert found.error is not None
        assert (len(found.outcome_reason), len(found.error)) == (
            min(len(text), REASON_CHARS_MAX),
            min(len(text), ERROR_CHARS_MAX),
        )
        assert found.outcome_reason[:3] == text[:3]
        assert term.is_valid


async def test_there_is_nothing_to_start_for_an_intent_that_does_not_exist(url):
    async with scene(url) as at:
        assert await at.store.attempts.start(await at.term(), "nobody", 5.0) == NotNow(None)


async def test_the_schedule_sees_every_write_of_an_attempt(url):
    async with scene(url) as at:
        await at.submit("a", TWICE)
        term = await at.term()
        _, cursor = await at.rebuilt()
        start = await started(at, term)
        rows, cursor = await at.refreshed(cursor)
        assert [row.intent_id for row in rows] == ["a"]
        recorded = await at.store.attempts.record(term, start, TROUBLE, 600.0)
        rows, cursor = await at.refreshed(cursor)
        assert [row.due_at for row in rows] == [recorded.due_at]


@pytest.mark.parametrize("outcome", [ACCEPTED, TROUBLE], ids=["over", "pending"])
async def test_a_record_that_was_committed_and_whose_answer_was_lost_is_known_when_it_is_said_again(
    local_url, outcome, monkeypatch
):
    async with scene(local_url) as at:
        term = await at.term()
        await at.submit("a", TWICE)
        start = await started(at, term)
        fenced = at.store.attempts._fenced  # type: ignore[attr-defined]

        async def unanswered(*args):
            await fenced(*args)
            raise Uncertain("the answer was lost")

        monkeypatch.setattr(at.store.attempts, "_fenced", unanswered)
        with pytest.raises(Uncertain):
            await at.store.attempts.record(term, start, outcome, 5.0)
        monkeypatch.undo()
        again = await at.store.attempts.record(term, start, outcome, 5.0)
        assert (again.status is Status.PENDING) is (outcome is TROUBLE)
        assert len(await attempts(at)) == 1
        assert term.is_valid
        with pytest.raises(LeaseLost):
            await at.store.attempts.record(term, start, outcome, 5.0)
