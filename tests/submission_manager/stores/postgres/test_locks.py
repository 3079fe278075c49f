"""Rows and tables that another session keeps locked on PostgreSQL: an answer soon that says so, and nothing written."""

import asyncio
import contextlib
import time
from collections.abc import Iterator

import psycopg
import pytest

from fencehold import Unavailable
from submission_manager.model.intents import WebhookStatus
from submission_manager.model.outcomes import Answer, Outcome
from submission_manager.ports import Recorded, Started
from tests.submission_manager.stores.scene import SOON, TWICE, scene

ACCEPTED = Outcome(Answer.ACCEPTED)
ROW = "SELECT 1 FROM submission_intents WHERE intent_id = 'a' FOR UPDATE"
TABLE = "LOCK TABLE submission_attempts IN ACCESS EXCLUSIVE MODE"
SOON_S = 5.0  # far below half the lease, which is 30 s here


@contextlib.contextmanager
def locked(url: str, statement: str) -> Iterator[None]:
    with psycopg.connect(url) as other:
        other.execute(statement.encode())
        yield
        other.rollback()


async def refused(work) -> Unavailable:
    began_s = time.monotonic()
    with pytest.raises(Unavailable) as caught:
        await work
    assert time.monotonic() - began_s < SOON_S
    return caught.value


@pytest.mark.fault("slow", "service")
async def test_a_locked_row_is_given_up_soon_and_the_message_says_what_holds_it_up(tables_url):
    async with scene(tables_url) as at:
        await at.submit("a", TWICE)
        term = await at.term()
        with locked(at.url, ROW):
            error = await refused(at.store.attempts.start(term, "a", 0.0))
        assert (error.code, 'relation "submission_intents"' in error.message) == ("locked", True)
        assert "pg_blocking_pids" in error.hint
        start = await at.store.attempts.start(term, "a", 0.0)
        assert isinstance(start, Started)
        before = at.everything()
        for lock in (ROW, TABLE):
            with locked(at.url, lock):
                assert (await refused(at.store.attempts.record(term, start, ACCEPTED, 0.0))).code == "locked"
            assert at.everything() == before
        assert isinstance(await at.store.attempts.record(term, start, ACCEPTED, 0.0), Recorded)
        assert term.is_valid


async def test_a_locked_row_is_given_up_soon_by_the_record_of_its_webhook_too(tables_url):
    async with scene(tables_url) as at:
        await at.submit("a", SOON)
        at.make_old("a")
        term = await at.term()
        await at.store.attempts.start(term, "a", 0.0)
        with locked(at.url, ROW):
            error = await refused(at.store.attempts.record_webhook(term, "a", WebhookStatus.DELIVERED, None))
        assert error.code == "locked"


async def test_a_statement_that_outlasts_the_transactions_own_limit_blames_no_role(tables_url, monkeypatch):
    async with scene(tables_url) as at:
        await at.submit("a", TWICE)
        term = await at.term()
        monkeypatch.setattr("submission_manager.stores.attempts.LOCK_WAIT_MS", 0)  # waits without a limit
        with locked(at.url, ROW):
            starting = asyncio.ensure_future(at.store.attempts.start(term, "a", 0.0))
            await _cancelled(at.url)
            error = await refused(starting)
        assert (error.code, "cancelled it" in error.hint) == ("canceled", True)


async def _cancelled(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as operator:
        waits = "FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
        while not operator.execute(f"SELECT pg_cancel_backend(pid) {waits}".encode()).fetchall():  # noqa: ASYNC110
            await asyncio.sleep(0.01)
