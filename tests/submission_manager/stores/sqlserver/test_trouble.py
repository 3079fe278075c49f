"""A dead server, a lost connection, a lock in the way: an answer within the limit, and never a secret."""

import asyncio
import datetime as dt
import threading
import time
from typing import Any
from urllib.parse import urlsplit

import pytest

from fencehold import ConfigurationError, FenceholdError, Unavailable
from fencehold.backends.sqlserver import own_pool, own_tables
from fencehold.backends.sqlserver.line import Line
from fencehold.connect import backend_for
from fencehold.model.election.rules import Ask, Lease
from fencehold.testing.proxy import FaultProxy
from submission_manager.model.contracts import Policy
from submission_manager.model.intents import NewIntent, Status
from submission_manager.model.outcomes import Answer, Outcome
from submission_manager.ports import NotNow, Started, Submission
from submission_manager.stores.opening import LEASE_TABLE, open_store
from tests.submission_manager.stores.scene import LIMIT_S, ONE_SHOT, TWICE, contract, scene
from tests.submission_manager.stores.sqlserver.others import (
    kill_others,
    locks_are_taken,
    statement,
    submission,
    transaction,
)

SECRET = "s3cr3t"
LOCKED = "UPDATE submission_intents SET updated_at = updated_at WHERE intent_id = 'a'"


async def test_a_server_that_is_not_there_is_unavailable_and_the_password_is_not_told():
    store = open_store(f"mssql://u:{SECRET}@127.0.0.1:1/d")
    with pytest.raises(Unavailable) as caught:
        await store.open()
    assert SECRET not in str(caught.value)
    await store.close()


async def test_an_id_that_ends_with_a_blank_is_refused_and_never_found():
    intake = open_store("mssql://u@127.0.0.1:1/d").intake
    with pytest.raises(ConfigurationError):
        await intake.submit(NewIntent("abc ", None, ONE_SHOT), LIMIT_S)
    assert await intake.read("abc ", LIMIT_S) is None
    assert await intake.history("abc ", LIMIT_S) is None
    assert await intake.repeated("abc ", "sms", None, LIMIT_S) is None


@pytest.mark.fault("reset", "service")
async def test_a_kept_connection_that_died_is_replaced_without_a_word(sqlserver_tables_url):
    async with scene(sqlserver_tables_url) as at:
        await at.submit("a")
        await asyncio.to_thread(kill_others, at)
        assert (await at.submit("b")).kind is Submission.CREATED
        assert await at.store.intake.read("a", LIMIT_S) is not None


async def test_a_record_is_not_said_twice_but_a_connection_that_died_meanwhile_costs_nobody_the_lease(
    sqlserver_tables_url, monkeypatch
):
    monkeypatch.setattr(own_pool, "FRESH_S", 0.0)
    async with scene(sqlserver_tables_url) as at:
        await at.submit("a", TWICE)
        term = await at.term()
        start = await at.store.attempts.start(term, "a", 0.0)
        assert isinstance(start, Started)
        await asyncio.to_thread(kill_others, at)
        recorded = await at.store.attempts.record(term, start, Outcome(Answer.ACCEPTED), 0.0)
        assert recorded.status is Status.ACCEPTED


async def test_a_caller_who_leaves_takes_no_connection_along(sqlserver_tables_url):
    async with scene(sqlserver_tables_url) as at:
        await at.store.intake.read("a", LIMIT_S)
        for _ in range(10):
            gone = asyncio.ensure_future(at.store.intake.read("a", LIMIT_S))
            await asyncio.sleep(0.001)
            gone.cancel()
            await asyncio.wait([gone])
        answers = await asyncio.gather(*(at.store.intake.read("a", LIMIT_S) for _ in range(20)))
        assert answers == [None] * 20


async def test_of_two_who_store_the_same_id_at_once_the_loser_answers_with_the_winners(sqlserver_tables_url):
    """The other's transaction is open when ours is sent: when it commits, ours violates the key, with all its rows."""
    async with scene(sqlserver_tables_url) as at:
        await at.submit("before")
        async with transaction(at) as run:
            await run(statement(at, "submit"), submission("contested"))
            work = [asyncio.ensure_future(at.submit(one)) for one in ("new", "contested", "before")]
            done, _ = await asyncio.wait(work, timeout=1.0)
            assert not done, "they wait for the other's key"
        kinds = [(await one).kind for one in work]
        assert kinds == [Submission.CREATED, Submission.KNOWN, Submission.KNOWN]


@pytest.mark.fault("slow", "service")
async def test_a_row_that_somebody_keeps_locked_is_given_up_and_costs_nobody_the_lease(
    sqlserver_tables_url, monkeypatch
):
    async with scene(sqlserver_tables_url) as at:
        await at.submit("a", TWICE)
        await at.submit("b", TWICE)
        term = await at.term()
        assert isinstance(await at.store.attempts.start(term, "b", 0.0), Started)
        async with transaction(at) as run:
            await run(LOCKED)
            monkeypatch.setattr(own_tables, "WRITE_LIMIT_S", 2.0)
            with pytest.raises(Unavailable) as caught:
                await at.store.attempts.start(term, "a", 0.0)
        assert caught.value.code == "locked"
        assert term.is_valid
        monkeypatch.undo()
        assert isinstance(await at.store.attempts.start(term, "a", 0.0), Started)


async def test_nobody_takes_over_while_a_record_waits_for_its_row(sqlserver_tables_url, monkeypatch):
    """Its lease is over by now, and a takeover is refused all the same: what it writes is still of its own epoch."""
    monkeypatch.setattr(own_tables, "WRITE_LIMIT_S", 50.0)
    async with scene(sqlserver_tables_url) as at:
        await at.submit("a", TWICE)
        term = await at.term()
        start = await at.store.attempts.start(term, "a", 0.0)
        assert isinstance(start, Started)
        rival = backend_for(at.url, LEASE_TABLE)()
        assert await taken(rival, f"{term.name}-other")
        async with transaction(at) as run:
            await run(LOCKED)
            record = asyncio.ensure_future(at.store.attempts.record(term, start, Outcome(Answer.ACCEPTED), 0.0))
            done, _ = await asyncio.wait([record], timeout=2.0)
            assert not done
            past = at.stamp(dt.datetime(2020, 1, 1, tzinfo=dt.UTC))
            at.sql(f"UPDATE {LEASE_TABLE} SET expires_at = :past WHERE lease_name = :id", past=past, id=term.name)
            assert not (await taken(rival, term.name)), "taken over with a fenced write under way"
        assert (await record).status is Status.ACCEPTED
        assert await taken(rival, term.name)
        await rival.close()


async def taken(rival: Any, name: str) -> bool:
    return isinstance(await rival.leases.acquire(Ask(name, "rival", 60.0, "nonce"), LIMIT_S), Lease)


async def test_the_clock_is_read_when_the_row_is_ours_and_not_before(sqlserver_tables_url):
    """A start that waits for the row past the deadline finds the deadline passed."""
    async with scene(sqlserver_tables_url) as at:
        await at.submit("a", contract(Policy.DEADLINE, max_acceptance_seconds=2))
        if not await locks_are_taken(at):
            pytest.skip("this T-SQL server passes UPDLOCK over, so the row is not ours before it is written")
        term = await at.term()
        async with transaction(at) as run:
            await run(LOCKED)
            waiting = asyncio.ensure_future(at.store.attempts.start(term, "a", 5.0))
            await run("WAITFOR DELAY '00:00:02.5'")
            assert not waiting.done()
        answer = await waiting
        assert isinstance(answer, NotNow)
        assert answer.status is Status.EXHAUSTED


@pytest.mark.fault("frozen-tcp", "service")
async def test_on_a_network_that_went_dead_every_call_ends_within_its_limit_and_few_threads_hang(
    sqlserver_tables_url, monkeypatch
):
    parts = urlsplit(sqlserver_tables_url)
    assert parts.port is not None
    async with FaultProxy("127.0.0.1", parts.port) as proxy:
        through = parts._replace(netloc=parts.netloc.replace(str(parts.port), str(proxy.port))).geturl()
        async with scene(through) as at:
            await at.submit("a")
            _, cursor = await at.rebuilt()
            proxy.freeze()
            calls = [
                at.store.intake.submit(NewIntent("b", None, ONE_SHOT), 0.3), at.store.intake.read("a", 0.3),
                at.store.schedule.refresh(cursor, 10, 0.3), at.store.attempts.owed_webhooks(1, 0.3),
            ]  # fmt: skip
            began_s = time.monotonic()
            answers = await asyncio.gather(*calls, return_exceptions=True)
            assert all(isinstance(answer, FenceholdError) for answer in answers), answers
            assert time.monotonic() - began_s < 3.0
            monkeypatch.setattr(own_pool, "HANGING_MAX", 5)
            monkeypatch.setattr(Line, "is_connecting", False)  # as after ten seconds each
            for _ in range(30):
                with pytest.raises(FenceholdError):
                    await at.store.intake.read("a", 0.02)
            hanging = [one for one in threading.enumerate() if one.name == "submissions-mssql"]
            assert len(hanging) <= 6 + 5 + 1
            monkeypatch.undo()
            proxy.heal()
            assert await at.store.intake.read("a", LIMIT_S) is not None
