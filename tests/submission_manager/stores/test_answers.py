"""Every call of a store records whether the database answered: that is what `database_silent_s` counts from."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from fencehold import ConfigurationError, LeaseLost, Unavailable
from submission_manager.answers import Answers
from submission_manager.model.intents import NewIntent, WebhookStatus
from submission_manager.model.outcomes import Answer, Outcome
from submission_manager.ports import Started
from submission_manager.stores.opening import Store, open_store
from tests.submission_manager.stores.scene import LIMIT_S, ONE_SHOT, make_lease_table, scene

AWAY = "postgresql://u@127.0.0.1:1/d"
NEW = NewIntent("a", b"{}", ONE_SHOT)


async def rebuilt(store: Store) -> None:
    async for _ in store.schedule.rebuild(10, LIMIT_S):
        pass


CALLS: dict[str, Callable[[Store], Awaitable[Any]]] = {
    "submit": lambda store: store.intake.submit(NEW, LIMIT_S),
    "repeated": lambda store: store.intake.repeated("a", "sms", None, LIMIT_S),
    "read": lambda store: store.intake.read("a", LIMIT_S),
    "history": lambda store: store.intake.history("a", LIMIT_S),
    "moved": lambda store: store.intake.moved(["a"], LIMIT_S),
    "pending_counts": lambda store: store.intake.pending_counts(LIMIT_S),
    "missing_tables": lambda store: store.intake.missing_tables(LIMIT_S),
    "owner": lambda store: store.intake.owner("x", LIMIT_S),
    "rebuild": rebuilt,
    "owed_webhooks": lambda store: store.attempts.owed_webhooks(1, LIMIT_S),
    "backlog": lambda store: store.attempts.backlog(1, 1, LIMIT_S),
}
ON_A_SERVER: dict[str, Callable[[Store], Awaitable[Any]]] = {
    "rights_missing": lambda store: store.intake.rights_missing(LIMIT_S),
    "listen": lambda store: store.schedule.listen(LIMIT_S),
}


@pytest.mark.parametrize("call", [*CALLS, *ON_A_SERVER])
async def test_a_call_that_gets_no_answer_begins_a_silence(call):
    answers = Answers()
    store = open_store(AWAY, answers=answers)
    with pytest.raises(Unavailable):
        await {**CALLS, **ON_A_SERVER}[call](store)
    assert answers.silent_s() is not None
    await store.close()


@pytest.mark.parametrize("call", CALLS)
async def test_a_call_that_is_answered_ends_it(call, local_url):
    async with scene(local_url) as at:
        await make_lease_table(at.url)
        answers = Answers()
        store = open_store(at.url, answers=answers)
        answers.unanswered(answers.last_s)
        await CALLS[call](store)
        assert answers.silent_s() is None
        await store.close()


async def test_every_write_of_the_executor_ends_it(local_url):
    async with scene(local_url) as at:
        await at.submit("a")
        term, answers = await at.term(), Answers()
        store = open_store(at.url, answers=answers)
        started = await store.attempts.start(term, "a", 0.0)
        assert isinstance(started, Started)
        for write in (
            lambda: store.attempts.record(term, started, Outcome(Answer.ACCEPTED), 0.0),
            lambda: store.attempts.record_webhook(term, "a", WebhookStatus.DELIVERED, None),
            lambda: store.attempts.expire(term, ["a"]),
            lambda: store.schedule.left_open(term, 1, LIMIT_S),
        ):
            answers.unanswered(answers.last_s)
            await write()
            assert answers.silent_s() is None
        await store.close()


async def test_a_lost_lease_says_nothing_about_the_database(local_url):
    async with scene(local_url) as at:
        term, answers = await at.term(), Answers()
        store = open_store(at.url, answers=answers)
        answers.unanswered(answers.last_s)
        term.lost("a test says so")
        with pytest.raises(LeaseLost):
            await store.attempts.start(term, "a", 0.0)
        assert answers.silent_s() is not None
        await store.close()


async def test_an_id_that_is_refused_before_anything_is_sent_is_no_answer():
    answers = Answers()
    store = open_store(AWAY, answers=answers)
    answers.unanswered(answers.last_s)
    with pytest.raises(ConfigurationError):
        await store.intake.submit(NewIntent("", None, ONE_SHOT), LIMIT_S)
    assert answers.silent_s() is not None
    await store.close()


async def test_the_schedule_is_asked_as_all_else(local_url):
    async with scene(local_url) as at:
        _, cursor = await at.rebuilt()
        answers = Answers()
        store = open_store(at.url, answers=answers)
        answers.unanswered(answers.last_s)
        page = await store.schedule.refresh(cursor, 10, LIMIT_S)
        assert (page.rows, answers.silent_s()) == ([], None)
        await store.close()
