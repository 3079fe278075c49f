"""`store.run_as_leader`: a job under a lease, told of in full when it fails, and tried again, here or elsewhere."""

import asyncio
import logging
import sqlite3
from typing import Any
from unittest.mock import AsyncMock

import pytest

import fencehold
from fencehold import ConfigurationError, FixedInterval, LeaseLost, RetryContext, Term, Unavailable
from fencehold.runtime.election.leader_job import BACKOFF_BASE_S, BACKOFF_MAX_S, HEALTHY_S, Pauses
from tests.fencehold.runtime.election.leader_job_parts import SOON, Told, for_ever, free, is_held

# The job and its term


async def test_the_job_runs_under_a_valid_term_and_what_it_returns_is_returned_after_the_lease_was_given_back() -> None:
    async with fencehold.connect("memory://job") as store:

        async def job(term: Term) -> str:
            assert term.is_valid
            assert await is_held(store)
            return f"epoch {term.epoch}"

        before = asyncio.all_tasks()
        assert await store.run_as_leader("x", job) == "epoch 1"
        assert not await is_held(store)
        assert asyncio.all_tasks() == before
        assert await store.run_as_leader("x", job) == "epoch 2"


async def test_a_job_whose_term_ends_is_cancelled_and_called_again_with_the_next() -> None:
    cancelled: list[int] = []

    async def job(term: Term) -> int:
        if term.epoch == 3:
            return term.epoch
        await free(store, term)
        try:
            await for_ever()
        finally:
            cancelled.append(term.epoch)
        raise AssertionError("for ever has ended")

    async with fencehold.connect("memory://called-again", facts=(told := Told())) as store:
        assert await store.run_as_leader("x", job) == 3
    assert cancelled == [1, 2]
    assert told.of("leader_job_failed") == []


@pytest.mark.parametrize("how", ["returns", "raises"])
async def test_a_job_that_notices_by_itself_that_its_term_is_over_has_neither_finished_nor_failed(how: str) -> None:
    async def job(term: Term) -> str | None:
        if term.epoch > 1:
            return "done"
        term.lost("for the test")
        if how == "returns":
            return None
        row = await store.leases.read(term.name)
        assert row is not None
        await store.leases.release(row)
        raise LeaseLost("over", name=term.name, epoch=term.epoch)

    async with fencehold.connect(f"memory://{how}-by-itself", facts=(told := Told())) as store:
        assert await store.run_as_leader("x", job, lease="300ms") == "done"
    assert told.of("leader_job_failed") == []


# A job that fails


async def test_a_job_that_raises_is_logged_with_its_whole_traceback_and_tried_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "fencehold")

    def deep_inside() -> None:
        raise ValueError("no such account") from KeyError("cause")

    async def job(term: Term) -> int:
        if term.epoch == 1:
            deep_inside()
        return term.epoch

    async with fencehold.connect("memory://raises") as store:
        assert await store.run_as_leader("x", job, backoff=SOON) == 2
    (failed,) = [record for record in caplog.records if record.getMessage().startswith("leader_job_failed")]
    assert failed.levelno == logging.ERROR
    for words in ("Traceback", "deep_inside", "KeyError: 'cause'", "ValueError: no such account", "failures=1"):
        assert words in failed.getMessage()


@pytest.mark.parametrize("database", ["sqlite_url", "postgres_url"])
async def test_another_candidate_leads_while_a_failed_job_waits_and_nobody_leads_without_doing_the_job(
    database: str, request: pytest.FixtureRequest
) -> None:
    ran: list[str] = []

    async def fails(term: Term) -> None:
        ran.append("fails")
        raise ValueError

    async def works(term: Term) -> str:
        ran.append("works")
        return "done"

    told, url = Told(), request.getfixturevalue(database)
    async with fencehold.connect(url, facts=told) as one, fencehold.connect(url) as two:
        await one.init()
        failing = asyncio.ensure_future(one.run_as_leader("x", fails, backoff=FixedInterval(3600)))
        await told.once("leader_job_failed")
        assert await asyncio.wait_for(two.run_as_leader("x", works), 10) == "done"
        assert not failing.done()
    await failing
    assert ran == ["fails", "works"]


async def test_a_failed_job_gives_the_lease_back_also_where_a_stop_would_not() -> None:
    async def fails(term: Term) -> None:
        raise ValueError

    async with fencehold.connect("memory://kept", facts=(told := Told())) as store:
        running = asyncio.ensure_future(
            store.run_as_leader("x", fails, release_on_stop=False, backoff=FixedInterval(3600))
        )
        await told.once("leader_released")
        async with store.leader("x", holder_id="another") as another:
            assert await another.wait_for_leadership(10)
        running.cancel()
        await asyncio.wait([running])


async def test_a_cancel_that_nobody_asked_for_is_a_failure_and_does_not_end_the_call() -> None:
    async def job(term: Term) -> str:
        if term.epoch == 1:
            helper = asyncio.ensure_future(for_ever())
            helper.cancel()
            await helper
        return "done"

    async with fencehold.connect("memory://stray", facts=(told := Told())) as store:
        assert await store.run_as_leader("x", job, backoff=SOON) == "done"
    (failed,) = told.of("leader_job_failed")
    assert "nobody cancelled the job itself" in failed["error"]


async def test_a_lost_lease_of_another_name_is_a_failure() -> None:
    async def job(term: Term) -> str:
        if term.epoch == 1:
            raise LeaseLost("over", name="another", epoch=1)
        return "done"

    async with fencehold.connect("memory://another-lease", facts=(told := Told())) as store:
        assert await store.run_as_leader("x", job, backoff=SOON) == "done"
    assert len(told.of("leader_job_failed")) == 1


async def test_a_job_that_returns_what_it_should_have_awaited_has_failed() -> None:
    async def job(term: Term) -> Any:
        return for_ever() if term.epoch == 1 else "done"

    async with fencehold.connect("memory://unawaited", facts=(told := Told())) as store:
        assert await store.run_as_leader("x", job, backoff=SOON) == "done"
    (failed,) = told.of("leader_job_failed")
    assert "without awaiting it" in failed["error"]


async def test_a_backoff_that_gives_up_raises_the_error_of_the_job_and_says_so() -> None:
    class Twice:
        def next_delay_s(self, ctx: RetryContext) -> float | None:
            assert isinstance(ctx.last_error, ValueError)
            return None if ctx.attempt == 2 else 0.0

    async def fails(term: Term) -> None:
        raise ValueError(f"epoch {term.epoch}")

    async with fencehold.connect("memory://gives-up", facts=(told := Told())) as store:
        with pytest.raises(ValueError, match="epoch 2"):
            await store.run_as_leader("x", fails, backoff=Twice())
        assert not await is_held(store)
    assert [fields["failures"] for fields in told.of("leader_job_failed")] == [1, 2]
    assert len(told.of("leader_job_gave_up")) == 1


@pytest.mark.parametrize("error", [SystemExit, GeneratorExit])
async def test_what_is_no_ordinary_error_ends_the_call_and_gives_the_lease_back(error: type[BaseException]) -> None:
    async def job(term: Term) -> None:
        raise error

    async with fencehold.connect("memory://exit") as store:
        with pytest.raises(error):
            await store.run_as_leader("x", job)
        assert not await is_held(store)


class SetClock:
    def __init__(self) -> None:
        self.time_s = 0.0

    def now_s(self) -> float:
        return self.time_s

    async def wait(self, event: asyncio.Event, timeout_s: float | None) -> bool:
        raise NotImplementedError


def test_pauses_are_jittered_grow_are_bounded_and_begin_anew_after_a_healthy_run() -> None:
    pauses, others = Pauses(None, SetClock()), Pauses(None, SetClock())
    first = [pauses.after(ValueError(), 0.0) or 0.0 for _ in range(200)]
    assert BACKOFF_BASE_S <= first[0] <= 3 * BACKOFF_BASE_S
    assert all(BACKOFF_BASE_S <= one <= BACKOFF_MAX_S for one in first)
    assert max(first) > BACKOFF_MAX_S / 2
    assert first != [others.after(ValueError(), 0.0) for _ in range(200)]
    again = pauses.after(ValueError(), HEALTHY_S)
    assert again is not None
    assert again <= 3 * BACKOFF_BASE_S
    assert pauses.failures == 1


# Mistakes and troubles of the store


async def test_a_missing_table_ends_the_call_at_first_contact_and_is_logged(sqlite_url: str) -> None:
    job = AsyncMock()
    async with fencehold.connect(sqlite_url, facts=(told := Told())) as store:
        with pytest.raises(ConfigurationError, match="init"):
            await store.run_as_leader("x", job)
    job.assert_not_called()
    assert len(told.of("leader_job_gave_up")) == 1


async def test_a_table_that_goes_missing_while_a_failed_job_waits_is_waited_for(sqlite_url: str) -> None:
    path = sqlite_url.removeprefix("sqlite:///")

    def rename(old: str, new: str) -> None:
        with sqlite3.connect(path) as conn:
            conn.execute(f"ALTER TABLE {old} RENAME TO {new}")

    async def job(term: Term) -> str:
        if not told.of("leader_job_failed"):
            rename("fencehold_leases", "elsewhere")
            raise Unavailable("down")
        return "done"

    async with fencehold.connect(sqlite_url, facts=(told := Told())) as store:
        await store.init()
        running = asyncio.ensure_future(store.run_as_leader("x", job, lease="500ms", backoff=SOON))
        await told.once("leader_job_not_started")
        rename("elsewhere", "fencehold_leases")
        assert await asyncio.wait_for(running, 20) == "done"
