"""Intents past their deadline are ended together, fenced, by the database's clock, and no attempt goes uncounted."""

import datetime as dt

import psycopg
import pytest

from fencehold import LeaseLost
from submission_manager.model.contracts import Policy
from submission_manager.model.intents import Exhausted, Status
from submission_manager.model.outcomes import OUTCOME_UNKNOWN
from submission_manager.ports import Expired, NotNow, Started
from tests.submission_manager.stores.scene import LIMIT_S, ONE_SHOT, SOON, TWICE, Scene, contract, scene


async def past_its_deadline(at: Scene, *names: str) -> None:
    for name in names:
        await at.submit(name, SOON)
        at.make_old(name)


async def test_a_row_of_the_schedule_has_its_target_and_its_deadline_if_its_policy_is_one(url):
    async with scene(url) as at:
        _, cursor = await at.rebuilt()
        soon = await at.submit("soon", SOON)
        await at.submit("other", contract(Policy.ONE_SHOT, submission_target="push.bulk"))
        expected = {
            "soon": ("sms.realtime", soon.intent.created_at + dt.timedelta(seconds=30)),
            "other": ("push.bulk", None),
        }
        for rows, _ in (await at.refreshed(cursor), await at.rebuilt()):
            assert {row.intent_id: (row.submission_target, row.deadline_at) for row in rows} == expected


async def test_of_many_those_past_their_deadline_end_without_an_attempt_and_their_webhooks_are_owed(url):
    async with scene(url) as at:
        term = await at.term()
        await past_its_deadline(at, *(f"old{n}" for n in range(20)))
        for name, given in {"young": SOON, "undated": TWICE}.items():
            await at.submit(name, given)
        _, cursor = await at.rebuilt()
        asked = [*(f"old{n}" for n in range(20)), "young", "undated"]
        answer = await at.store.attempts.expire(term, asked)
        assert sorted(answer.pending) == ["undated", "young"]
        ended = {over.intent.intent_id: over for over in answer.over}
        assert sorted(ended) == sorted(f"old{n}" for n in range(20))
        intent, found = ended["old7"].intent, await at.store.intake.history("old7", LIMIT_S)
        assert (intent, []) == found
        assert (intent.status, intent.exhausted_reason) == (Status.EXHAUSTED, Exhausted.DEADLINE_EXCEEDED)
        assert ended["old7"].webhook == SOON.webhook
        assert len(await at.store.attempts.owed_webhooks(100, LIMIT_S)) == 20
        rows, _ = await at.refreshed(cursor)
        assert {row.intent_id: row.due_at for row in rows} == dict.fromkeys(ended)


async def test_ending_what_is_over_changes_nothing(url):
    async with scene(url) as at:
        term = await at.term()
        await past_its_deadline(at, "a")
        assert len((await at.store.attempts.expire(term, ["a"])).over) == 1
        before = at.everything()
        assert await at.store.attempts.expire(term, ["a"]) == Expired([], [])
        assert at.everything() == before


async def test_a_start_that_an_earlier_leader_left_behind_is_counted_when_its_intent_is_ended(url):
    async with scene(url) as at:
        await at.submit("a", SOON)
        start = await at.store.attempts.start(await at.term(), "a", 5.0)
        assert isinstance(start, Started)
        at.make_old("a")
        answer = await at.store.attempts.expire(await at.take_over(), ["a"])
        assert (answer.unknown, [over.intent.attempt_count for over in answer.over]) == (1, [1])
        found = await at.store.intake.history("a", LIMIT_S)
        assert found is not None
        assert found[0] == answer.over[0].intent
        assert [(one.attempt_number, one.error, one.started_at) for one in found[1]] == [
            (1, OUTCOME_UNKNOWN, start.started_at)
        ]
        assert [at.column("a", name) for name in ("attempt_epoch", "attempt_holder", "next_attempt_at")] == [None] * 3


async def test_an_attempt_under_way_is_not_ended_over_its_callers_head(url):
    async with scene(url) as at:
        term = await at.term()
        await at.submit("a", SOON)
        assert isinstance(await at.store.attempts.start(term, "a", 5.0), Started)
        at.make_old("a")
        assert await at.store.attempts.expire(term, ["a"]) == Expired([], ["a"])


async def test_a_start_of_this_term_whose_answer_was_lost_is_no_attempt(url):
    async with scene(url) as at:
        term = await at.term()
        await at.submit("a", SOON)
        assert isinstance(await (await at.another()).attempts.start(term, "a", 5.0), Started)
        at.make_old("a")
        answer = await at.store.attempts.expire(term, ["a"])
        assert [over.intent.attempt_count for over in answer.over] == [0]
        assert await at.store.attempts.start(term, "a", 5.0) == NotNow(Status.EXHAUSTED)


async def test_a_leader_who_was_replaced_ends_nothing(url):
    async with scene(url) as at:
        await past_its_deadline(at, "a")
        stale = await at.term()
        await at.take_over()
        before = at.everything()
        with pytest.raises(LeaseLost):
            await at.store.attempts.expire(stale, ["a"])
        assert at.everything() == before
        assert not stale.is_valid


async def test_a_row_that_somebody_else_has_locked_holds_up_no_other(tables_url):
    async with scene(tables_url) as at:
        term = await at.term()
        await past_its_deadline(at, "a", "b", "c")
        with psycopg.connect(at.url) as other:
            other.execute("SELECT 1 FROM submission_intents WHERE intent_id = 'b' FOR UPDATE")
            answer = await at.store.attempts.expire(term, ["a", "b", "c"])
        assert sorted(over.intent.intent_id for over in answer.over) == ["a", "c"]
        assert answer.pending == ["b"]
        assert len((await at.store.attempts.expire(term, ["b"])).over) == 1


async def test_what_has_no_deadline_is_never_ended_for_its_age(url):
    async with scene(url) as at:
        term = await at.term()
        for name, given in {"a": ONE_SHOT, "b": TWICE}.items():
            await at.submit(name, given)
            at.make_old(name)
        answer = await at.store.attempts.expire(term, ["a", "b"])
        assert (answer.over, sorted(answer.pending)) == ([], ["a", "b"])
