"""A hard limit on each test, sync or async: past it the test fails and shows where every task and thread stands.

Three steps, each for what the one before cannot end: the event loop cancels the test; an alarm breaks into code that
blocks the main thread; the process ends when even that does not return.
"""

import asyncio
import faulthandler
import functools
import inspect
import io
import os
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import Any, NoReturn

import pytest

GRACE_S = 5.0
LAST_RESORT_S = 60.0
LOAD_MEANT = 2.0  # of each core: the parts of a run that stand beside each other
STRETCH_MAX = 4.0


class TooLong(KeyboardInterrupt):
    """Raised by the alarm. Of the kind that asyncio lets through instead of storing it in some task."""


def stretched(limit_s: float) -> float:
    """The limit on this machine as it is now: what else it has to do makes everything take longer."""
    load = os.getloadavg()[0] / (os.cpu_count() or 1)
    return limit_s * min(STRETCH_MAX, max(1.0, load / LOAD_MEANT))


def limited(test: Callable[..., Any], arguments: Mapping[str, Any], limit_s: float) -> None:
    """Call the test with its arguments; fails it past the limit."""
    inner = getattr(getattr(test, "hypothesis", None), "inner_test", None)
    if inner is not None and inspect.iscoroutinefunction(inner):
        test.hypothesis.inner_test = _as_sync(inner, limit_s)  # type: ignore[attr-defined]
    is_async = inspect.iscoroutinefunction(test)
    report: list[str] = []
    with _alarm(limit_s + (GRACE_S if is_async else 0.0), report):
        try:
            if is_async:
                _run(test(**arguments), limit_s, report)
            else:
                test(**arguments)
        except TooLong:
            _fail(limit_s, report)


def _as_sync(inner: Callable[..., Any], limit_s: float) -> Callable[..., None]:
    @functools.wraps(inner)
    def run(*args: Any, **kwargs: Any) -> None:
        _run(inner(*args, **kwargs), limit_s, [])

    return run


def _run(main: Any, limit_s: float, report: list[str]) -> None:
    stuck: set[asyncio.Task[Any]] = set()
    try:
        with asyncio.Runner() as runner:
            runner.run(_bounded(main, limit_s, report, stuck))
    finally:
        # What the alarm broke off is told in the report; a task's own complaint at its end would only repeat it.
        for task in stuck:
            if task.done() and not task.cancelled():
                task.exception()
    if report:
        _fail(limit_s, report)


async def _bounded(main: Any, limit_s: float, report: list[str], stuck: "set[asyncio.Task[Any]]") -> None:
    task = asyncio.ensure_future(main)
    stuck.add(task)
    done, _ = await asyncio.wait([task], timeout=limit_s)
    if done:
        task.result()
        return
    report.append(_tasks(asyncio.all_tasks()) + _threads())
    task.cancel()
    await asyncio.wait([task])


@contextmanager
def _alarm(after_s: float, report: list[str]) -> Iterator[None]:
    """Repeats, because one interrupt may be swallowed by the clean-up of another."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def ring(signum: int, frame: FrameType | None) -> None:
        if not report:
            report.append(_running_tasks() + _threads())
        raise TooLong

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, after_s, GRACE_S)
    faulthandler.dump_traceback_later(after_s + LAST_RESORT_S, exit=True, file=sys.__stderr__ or sys.stderr)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        faulthandler.cancel_dump_traceback_later()


def _fail(limit_s: float, report: list[str]) -> NoReturn:
    pytest.fail(f"took longer than {limit_s:g} s\n" + "\n".join(report), pytrace=False)


def _running_tasks() -> str:
    loop = asyncio._get_running_loop()
    return _tasks(asyncio.all_tasks(loop)) if loop is not None else ""


def _tasks(tasks: "set[asyncio.Task[Any]]") -> str:
    text = io.StringIO()
    for task in sorted(tasks, key=lambda one: one.get_name()):
        task.print_stack(file=text)
        text.write("\n")
    return text.getvalue()


def _threads() -> str:
    with tempfile.TemporaryFile() as file:
        faulthandler.dump_traceback(file=file, all_threads=True)
        file.seek(0)
        return file.read().decode(errors="replace")
