"""Ctrl-C while PostgreSQL is being asked: asyncio.run() cancels every task, and finds nothing to print of ours."""

import asyncio
import gc
import warnings
from collections.abc import Callable, Coroutine
from typing import Any, cast

import psycopg
import pytest

from fencehold.backends.postgres import wire
from fencehold.ports.time_limit import fixed


class NoConnection:
    """There is nothing to cut."""

    def fileno(self) -> int:
        raise OSError


Work = Callable[[asyncio.Event], Coroutine[Any, Any, None]]


async def cut_off(begun: asyncio.Event) -> None:
    """As psycopg, which waits for the server once more when it is cancelled, and finds the socket shut down."""
    begun.set()
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        raise psycopg.OperationalError("server closed the connection unexpectedly") from None


async def refused(begun: asyncio.Event) -> None:
    begun.set()
    raise psycopg.OperationalError("the server is shutting down")


def called(work: Work, begun: asyncio.Event) -> Coroutine[Any, Any, None]:
    return wire.bounded(cast(wire.Connection, NoConnection()), work(begun), fixed(60))


def interrupted(main: Coroutine[Any, Any, None]) -> list[str]:
    """What asyncio prints of a program that ends so."""
    said: list[str] = []
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        with asyncio.Runner() as runner:
            runner.get_loop().set_exception_handler(lambda _, context: said.append(str(context["message"])))
            with pytest.raises(KeyboardInterrupt):
                runner.run(main)
        gc.collect()
    return said + [str(one.message) for one in warned]


def test_a_call_that_is_under_way_ends_cancelled_and_not_with_the_error_of_its_cut_line() -> None:
    async def main() -> None:
        begun = asyncio.Event()
        call = asyncio.create_task(called(cut_off, begun))
        await begun.wait()
        assert not call.done()
        raise KeyboardInterrupt

    assert interrupted(main()) == []


def test_a_call_whose_task_has_not_begun_leaves_no_coroutine_that_was_never_awaited() -> None:
    async def main() -> None:
        call = asyncio.create_task(called(cut_off, asyncio.Event()))
        asyncio.get_running_loop().call_soon(interrupt)  # after the call has made its task, before that runs
        await call

    def interrupt() -> None:
        raise KeyboardInterrupt

    assert interrupted(main()) == []


async def test_an_error_of_a_call_that_nobody_cancelled_is_its_callers() -> None:
    with pytest.raises(psycopg.OperationalError, match="shutting down"):
        await called(refused, asyncio.Event())
