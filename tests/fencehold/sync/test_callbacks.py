"""Callbacks of `fencehold.sync`: on threads, which nothing can stop."""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

import fencehold.sync
from fencehold.runtime.core.callbacks import Dispatcher
from fencehold.sync.callbacks import on_thread

WHY = "a thread cannot be stopped, so later callbacks may run beside it"
RUNS_ON = f"had not ended 1 s after its term and runs on: {WHY}"


class Slow:
    """Its first call takes until it is told to end."""

    def __init__(self) -> None:
        self.may_end, self.begun, self.ended = threading.Event(), threading.Event(), threading.Event()

    def hook(self) -> None:
        if not self.begun.is_set():
            self.begun.set()
            assert self.may_end.wait(50)
            self.ended.set()


@pytest.mark.parametrize("shape", [lambda hook: hook, functools.partial], ids=["method", "partial"])
def test_a_thread_that_outlasts_its_term_is_said_to_run_on_beside_the_next_callback(
    sqlite_url: str, shape: Callable[[Callable[[], None]], Callable[[], None]]
) -> None:
    slow, said = Slow(), threading.Event()
    beside: list[bool] = []
    errors: list[str] = []
    callback = shape(slow.hook)
    with fencehold.sync.connect(sqlite_url) as store:
        store.init()
        leader = store.leader("x", lease="60s")
        leader.on_acquired(callback)
        leader.on_released(lambda: beside.append(not slow.ended.is_set()))
        leader.on_error(lambda error: errors.append(str(error)))
        leader.on_error(lambda error: said.set())
        with leader:
            assert slow.begun.wait(30)
            leader.step_down()
            assert said.wait(30)
            slow.may_end.set()
    assert beside[0] is True
    assert errors == [f"callback {getattr(callback, '__qualname__', repr(callback))} {RUNS_ON}"]


async def test_a_function_that_never_got_a_thread_is_said_to_be_cancelled() -> None:
    errors: list[str] = []
    free = threading.Event()
    pool = ThreadPoolExecutor(max_workers=1)
    asyncio.get_running_loop().set_default_executor(pool)
    pool.submit(free.wait, 50)
    dispatcher = Dispatcher(lambda error, callback: errors.append(str(error)), limit_s=0.01)
    dispatcher.send(on_thread(RUNS_ON.upper))
    assert await dispatcher.drain(30)
    free.set()
    assert errors == ["callback str.upper took longer than 0.01 s and was cancelled"]
