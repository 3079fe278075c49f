"""`store.run_as_leader`: a job under a lease, told of in full when it fails, and tried again, here or elsewhere."""

import asyncio
import functools
import logging
import sqlite3
from collections import defaultdict
from collections.abc import Callable
from typing import Any
from unittest.mock import AsyncMock

import pytest

import fencehold
from fencehold import ConfigurationError, FixedInterval, LeaseLost, RetryContext, Term, Unavailable
from fencehold.runtime.leader_job import BACKOFF_BASE_S, BACKOFF_MAX_S, HEALTHY_S, Pauses

SOON = FixedInterval(0.01)


class Told:
    """Facts, for tests that wait for one."""

    def __init__(self) -> None:
        self.all: list[tuple[str, dict[str, Any]]] = []
        self._loop = asyncio.get_running_loop()
        self._events: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)

    def fact(self, event: str, **fields: Any) -> None:
        self.all.append((event, fields))
        self._loop.call_soon_threadsafe(self._events[event].set)

    def of(self, event: str) -> list[dict[str, Any]]:
        return [fields for told, fields in self.all if told == event]

    async def once(self, event: str) -> None:
        await self._events[event].wait()


async def free(store: fencehold.Store, term: Term) -> None:
    """The term is lost, and its lease free."""
    term.lost("for the test")
    row = await store.leases.read(term.name)
    assert row is not None
    await store.leases.release(row)


async def is_held(store: fencehold.Store, name: str = "x") -> bool:
    row = await store.leases.read(name)
    return row is not None and row.is_live


async def for_ever() -> None:
    await asyncio.Event().wait()


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


# Stops


async def running_in(store: fencehold.Store, **options: Any) -> "asyncio.Future[Any]":
    """A job that has begun and never ends by itself."""
    begun = asyncio.Event()

    async def job(term: Term) -> None:
        begun.set()
        await for_ever()

    running = asyncio.ensure_future(store.run_as_leader("x", job, **options))
    await begun.wait()
    return running


async def test_a_stop_cancels_the_job_gives_the_lease_back_and_returns_none() -> None:
    async with fencehold.connect("memory://stop") as store:
        stop = asyncio.Event()
        running = await running_in(store, stop=stop)
        stop.set()
        assert await asyncio.wait_for(running, 10) is None
        assert not await is_held(store)


async def test_a_stop_before_the_start_runs_nothing() -> None:
    async with fencehold.connect("memory://stop-first") as store:
        stop = asyncio.Event()
        stop.set()
        assert await store.run_as_leader("x", AsyncMock(side_effect=AssertionError), stop=stop) is None


async def test_a_stop_ends_the_wait_for_a_lease_that_another_holds() -> None:
    async with fencehold.connect("memory://stop-follower") as store:
        held = await running_in(store, holder_id="another")
        stop = asyncio.Event()
        waiting = asyncio.ensure_future(store.run_as_leader("x", AsyncMock(), stop=stop))
        await asyncio.sleep(0.05)
        stop.set()
        assert await asyncio.wait_for(waiting, 10) is None
        assert not held.done()


@pytest.mark.parametrize("by", ["stop", "close"])
async def test_a_stop_or_a_close_ends_the_pause_after_a_failure(by: str) -> None:
    async with fencehold.connect("memory://stop-pause", facts=(told := Told())) as store:
        stop, job = asyncio.Event(), AsyncMock(side_effect=ValueError)
        running = asyncio.ensure_future(store.run_as_leader("x", job, stop=stop, backoff=FixedInterval(3600)))
        await told.once("leader_released")
        if by == "stop":
            stop.set()
        else:
            await store.close()
        assert await asyncio.wait_for(running, 10) is None
    job.assert_awaited_once()


async def test_closing_the_store_cancels_the_job_and_returns_none() -> None:
    async with fencehold.connect("memory://close") as store:
        running = await running_in(store)
    assert await asyncio.wait_for(running, 10) is None


async def test_a_cancel_passes_through_and_gives_the_lease_back() -> None:
    async with fencehold.connect("memory://cancel") as store:
        running = await running_in(store)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert not await is_held(store)


async def test_a_stop_before_the_job_could_begin_is_no_failure() -> None:
    async with fencehold.connect("memory://before-job", facts=(told := Told())) as store:
        job, steps = AsyncMock(), store._leader_job("x", None, None)
        term = await steps.next_term()
        assert term is not None
        term.lost("for the test")
        steps.stop()
        assert await steps._under(term, job) is None
        assert await steps.next_term() is None
    job.assert_not_called()
    assert told.of("leader_job_failed") == []


# What cannot be run


def plain(term: Term) -> None:
    raise AssertionError("never called")


async def takes_nothing() -> None:
    raise AssertionError("never called")


async def yields(term: Term) -> Any:
    yield term


BAD = [None, "job", plain, lambda term: term, functools.partial(plain), takes_nothing, yields, Term]


@pytest.mark.parametrize("job", BAD, ids=repr)
async def test_what_is_no_async_function_of_one_argument_is_refused_before_anything_is_sent(job: Any) -> None:
    async with fencehold.connect("memory://bad-job") as store:
        with pytest.raises(ConfigurationError) as raised:
            await store.run_as_leader("x", job)
        assert raised.value.code == "bad_job"
        assert "async def job(term)" in raised.value.hint
        assert await store.leases.list() == []


class Methods:
    async def method(self, term: Term, more: int = 0) -> str:
        return "done"

    async def __call__(self, term: Term) -> str:
        return "done"


def decorated(job: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(job)
    def wrapper(*args: Any) -> Any:
        return job(*args)

    return wrapper


GOOD = [
    Methods().method, Methods(), functools.partial(Methods().method, more=1), decorated(Methods().method),
    AsyncMock(return_value="done"),
]  # fmt: skip


@pytest.mark.parametrize("job", GOOD, ids=["method", "object", "partial", "decorated", "mock"])
async def test_every_kind_of_async_callable_is_a_job(job: Any) -> None:
    async with fencehold.connect("memory://good-job") as store:
        assert await store.run_as_leader("x", job) == "done"


async def test_an_object_that_turns_out_not_to_be_async_is_not_tried_again() -> None:
    class Plain:
        def __call__(self, term: Term) -> int:
            return 5

    async with fencehold.connect("memory://plain-object", facts=(told := Told())) as store:
        with pytest.raises(ConfigurationError) as raised:
            await store.run_as_leader("x", Plain())  # type: ignore[arg-type]
        assert raised.value.code == "bad_job"
        assert not await is_held(store)
    assert len(told.of("leader_job_gave_up")) == 1


async def test_a_closed_store_runs_nothing() -> None:
    with pytest.raises(ConfigurationError) as raised:
        await fencehold.connect("memory://closed").run_as_leader("x", AsyncMock())
    assert raised.value.code == "store_closed"


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
