"""`run_as_leader` without an event loop: the job runs in the calling thread, which blocks."""

import asyncio
import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import fencehold.sync
from fencehold import ConfigurationError, FixedInterval
from fencehold.sync import Store, Term
from fencehold.sync.leader_job import JobThread

SOON = FixedInterval(0.01)


class Caller(threading.Thread):
    """Calls it, and keeps what came of it."""

    def __init__(self, call: Callable[[], Any]) -> None:
        super().__init__(daemon=True)
        self._call = call
        self.answer: Any = "none yet"
        self.start()

    def run(self) -> None:
        try:
            self.answer = self._call()
        except BaseException as error:
            self.answer = error

    def result(self) -> Any:
        self.join(10)
        return self.answer


class Work:
    """A job that has begun, and runs until its term is over."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.left = threading.Event()

    def __call__(self, term: Term) -> str:
        self.begun.set()
        while term.is_valid:
            self.left.wait(0.01)
        return "unheard"


def is_held(store: Store) -> bool:
    row = store.leases.read("x")
    return row is not None and row.is_live


def test_the_job_runs_in_the_calling_thread_and_what_it_returns_is_returned() -> None:
    with fencehold.sync.connect("memory://sync-job") as store:

        def job(term: Term) -> tuple[int, int]:
            assert term.is_valid
            return term.epoch, threading.get_ident()

        assert store.run_as_leader("x", job) == (1, threading.get_ident())
        assert not is_held(store)


def test_a_sync_job_that_raises_is_logged_with_its_traceback_and_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    def job(term: Term) -> Any:
        if term.epoch == 1:
            raise ValueError("no such account")
        return term.epoch

    with caplog.at_level(logging.ERROR, "fencehold"), fencehold.sync.connect("memory://sync-raises") as store:
        assert store.run_as_leader("x", job, backoff=SOON) == 2
    (failed,) = caplog.records
    assert "leader_job_failed" in failed.getMessage()
    assert 'raise ValueError("no such account")' in failed.getMessage()


def test_a_sync_job_whose_term_ends_is_called_again_with_the_next() -> None:
    def job(term: Term) -> Any:
        if term.epoch == 1:
            term.lost("for the test")
            row = store.leases.read("x")
            assert row is not None
            store.leases.release(row)
        return term.epoch

    with fencehold.sync.connect("memory://sync-again") as store:
        assert store.run_as_leader("x", job) == 2


def test_a_stop_on_another_thread_ends_the_term_and_returns_none() -> None:
    with fencehold.sync.connect("memory://sync-stop") as store:
        stop, work = threading.Event(), Work()
        caller = Caller(lambda: store.run_as_leader("x", work, stop=stop))
        assert work.begun.wait(10)
        stop.set()
        assert caller.result() is None
        assert not is_held(store)


def test_a_stop_ends_a_sync_pause_after_a_failure() -> None:
    with fencehold.sync.connect("memory://sync-pause") as store:
        stop, failed = threading.Event(), threading.Event()

        def job(term: Term) -> None:
            failed.set()
            raise ValueError

        caller = Caller(lambda: store.run_as_leader("x", job, stop=stop, backoff=FixedInterval(3600)))
        assert failed.wait(10)
        stop.set()
        assert caller.result() is None


def test_closing_the_store_on_another_thread_ends_the_job_and_returns_none() -> None:
    store = fencehold.sync.connect("memory://sync-close").open()
    work = Work()
    caller = Caller(lambda: store.run_as_leader("x", work))
    assert work.begun.wait(10)
    store.close()
    assert caller.result() is None


def test_closing_the_store_on_another_thread_ends_the_wait_for_a_lease() -> None:
    with fencehold.sync.connect("memory://sync-wait") as holder, holder.leader("x") as leader:
        assert leader.wait_for_leadership(10)
        store = fencehold.sync.connect("memory://sync-wait").open()
        caller = Caller(lambda: store.run_as_leader("x", lambda term: pytest.fail("it ran")))
        store.leases.list()
        store.close()
        assert caller.result() is None


def test_a_stop_before_the_sync_job_could_begin_is_no_failure(caplog: pytest.LogCaptureFixture) -> None:
    with fencehold.sync.connect("memory://sync-before-job") as store:
        loop = store._running()
        steps = loop.call(store._store._leader_job, "x", None, None)

        def ended_and_stopped(term: Any) -> Term:
            term.lost("for the test")
            loop._loop.call_soon_threadsafe(steps.stop)
            return Term(loop, term)

        assert JobThread(loop, steps).run(lambda term: pytest.fail("it ran"), ended_and_stopped) is None
    assert "leader_job_failed" not in caplog.text


def test_a_backoff_that_gives_up_raises_the_error_of_the_sync_job(caplog: pytest.LogCaptureFixture) -> None:
    class Once:
        def next_delay_s(self, ctx: object) -> float | None:
            return None

    def job(term: Term) -> None:
        raise ValueError("mine")

    with fencehold.sync.connect("memory://sync-gives-up") as store:
        with pytest.raises(ValueError, match="mine"):
            store.run_as_leader("x", job, backoff=Once())
        assert not is_held(store)
    assert "leader_job_gave_up" in caplog.text


async def async_job(term: Term) -> None:
    raise AssertionError("never called")


@pytest.mark.parametrize("job", [None, async_job, lambda: None])
def test_what_is_no_plain_function_of_one_argument_is_refused(job: Any) -> None:
    with fencehold.sync.connect("memory://sync-bad-job") as store:
        with pytest.raises(ConfigurationError) as raised:
            store.run_as_leader("x", job)
        assert raised.value.code == "bad_job"
        assert store.leases.list() == []


def test_a_plain_job_that_returns_a_coroutine_has_failed(caplog: pytest.LogCaptureFixture) -> None:
    def job(term: Term) -> Any:
        return async_job(term) if term.epoch == 1 else "done"

    with fencehold.sync.connect("memory://sync-unawaited") as store:
        assert store.run_as_leader("x", job, backoff=SOON) == "done"
    assert "without awaiting it" in caplog.text


PROGRAM = """
import sys, time, fencehold.sync
def job(term):
    print("begun", flush=True)
    time.sleep(60)
with fencehold.sync.connect(sys.argv[1]) as store:
    store.init()
    store.run_as_leader("x", job, lease=60)
"""


def test_ctrl_c_ends_a_sync_job_and_gives_the_lease_back(sqlite_url: str, tmp_path: Path) -> None:
    # As from a terminal: a test run in the background hands SIGINT down ignored.
    child = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, sqlite_url], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == "begun\n"
        os.kill(child.pid, signal.SIGINT)
        _, errors = child.communicate(timeout=30)
    finally:
        child.kill()
    assert errors.strip().endswith("KeyboardInterrupt")
    with fencehold.sync.connect(sqlite_url) as store:
        assert not is_held(store)


def test_a_forked_child_that_uses_its_parents_store_gets_an_error_and_does_not_hang() -> None:
    with fencehold.sync.connect("memory://sync-forked") as store:
        child = os.fork()
        if child == 0:
            signal.alarm(20)
            try:
                store.leases.list()
            except ConfigurationError as error:
                os._exit(0 if error.code == "store_closed" else 1)
            os._exit(1)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0


def test_whoever_waits_on_another_thread_while_the_store_closes_gets_an_error_and_is_not_left_waiting() -> None:
    store = fencehold.sync.connect("memory://sync-waiting").open()
    loop = store._running()
    begun = threading.Event()

    async def waits() -> None:
        loop._loop.call_soon(begun.set)
        await _never()

    caller = Caller(lambda: loop.run(waits()))
    assert begun.wait(10)
    store.close()
    answer = caller.result()
    assert isinstance(answer, ConfigurationError)
    assert answer.code == "store_closed"
    with pytest.raises(ConfigurationError):
        loop.run(_never())


async def _never() -> None:
    await asyncio.Event().wait()
