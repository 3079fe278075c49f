"""SubmissionManager on SQLite: no write holds the lock for longer than its statements take, or outlives its caller."""

import asyncio
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest

from fencehold import LeaseLost
from submission_manager.model.intents import Status, WebhookStatus
from submission_manager.ports import NotNow
from tests.fencehold.backends.sqlite.lock_witness import witnessed, writers
from tests.submission_manager.stores.scene import SOON, TWICE, Scene, scene
from tests.submission_manager.stores.test_attempts import ACCEPTED, TROUBLE, started
from tests.tidy.tree import ROOT

OWN_TABLES = ROOT / "src" / "fencehold" / "backends" / "sqlite" / "own_tables.py"
#: Besides SQLite: the rules, the service's own rows, and the term's deadline, which is a comparison of clocks.
HARMLESS = (
    "submission_manager.stores", "submission_manager.model", "submission_manager.ports", "fencehold.backends.sqlite",
    "fencehold.backends.sql.statements", "fencehold.backends.sql.own_tables", "fencehold.backends.sql.own_rows",
    "fencehold.backends.sql.steps", "fencehold.backends.sql.migrations", "namedtuple_Run",
    "fencehold.ports.own_tables", "json", "enum", "functools", "threading", "fencehold.runtime.election.term",
    "fencehold.runtime.election.keeper", "fencehold.runtime.core.trust",
    "fencehold.runtime.core.clock",
)  # fmt: skip


@pytest.fixture
def url(sqlite_url: str) -> str:
    return sqlite_url


async def use_everything(at: Scene) -> None:
    first = await at.term()
    assert await at.store.intake.owner(first.name, 5.0) == first.name
    await at.submit("a", TWICE)
    await at.submit("a", TWICE)
    await at.submit("late", SOON)
    left_open = await started(at, first)
    await at.store.attempts.record(first, left_open, TROUBLE, 0.0)
    await started(at, first)
    second = await at.take_over()
    unknown = await at.store.attempts.start(second, "a", 0.0)
    assert isinstance(unknown, NotNow)
    assert unknown.over is not None
    await at.store.attempts.record(second, await started(at, second, "late"), ACCEPTED, 0.0)
    await at.store.attempts.record_webhook(second, "a", WebhookStatus.DELIVERED, None)


async def test_no_write_of_the_service_spans_a_turn_of_the_event_loop_or_another_call(url, monkeypatch):
    with witnessed(monkeypatch, *HARMLESS) as witness:
        async with scene(url) as at:
            await use_everything(at)
    assert witness.faults == []
    assert witness.verbs >= writers(OWN_TABLES), "a verb that writes is missing above"


@contextmanager
def locked(at: Scene) -> Iterator[None]:
    """Another process is writing."""
    with closing(sqlite3.connect(at.url.removeprefix("sqlite:///"), isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield


async def begun(task: asyncio.Task[object]) -> None:
    """It waits for its thread, and the thread for the lock."""
    await asyncio.sleep(0)
    assert not task.done()


async def test_a_start_that_nobody_waits_for_any_more_is_not_written(url):
    async with scene(url) as at:
        term = await at.term()
        await at.submit("a")
        with locked(at):
            start = asyncio.create_task(at.store.attempts.start(term, "a", 0.0))
            await begun(start)
            start.cancel()
            await asyncio.wait([start])
        assert await at.store.attempts.start(term, "nobody", 0.0) == NotNow(None)  # in its turn on the thread
        assert at.column("a", "attempt_epoch") is None


async def test_a_start_is_not_committed_when_the_term_has_ended_meanwhile(url):
    async with scene(url) as at:
        term = await at.term()
        await at.submit("a")
        with locked(at):
            start = asyncio.create_task(at.store.attempts.start(term, "a", 0.0))
            await begun(start)
            term.lost("a test says so")
        with pytest.raises(LeaseLost, match="nothing was written"):
            await start
        assert at.column("a", "attempt_epoch") is None
        with locked(at), pytest.raises(LeaseLost):  # it is not even asked for
            await at.store.attempts.start(term, "a", 0.0)


async def test_a_value_that_cannot_be_stored_is_the_drivers_error_and_ends_no_term(url):
    async with scene(url) as at:
        term = await at.term()
        await at.submit("a")
        at.sql("CREATE TRIGGER picky BEFORE UPDATE ON submission_intents BEGIN SELECT RAISE(ABORT, 'unfit'); END")
        with pytest.raises(sqlite3.IntegrityError, match="unfit"):
            await at.store.attempts.start(term, "a", 0.0)
        assert term.is_valid
        at.sql("DROP TRIGGER picky")
        assert (await started(at, term)).attempt_number == 1
        assert at.column("a", "status") == Status.PENDING
