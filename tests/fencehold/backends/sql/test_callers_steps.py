"""A step in a caller's transaction, without a database: sync and async connections run it alike."""

from __future__ import annotations

import asyncio
import gc
import inspect
import weakref
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest

from fencehold.backends.sql.callers.connections import (
    CallersAsyncConnection,
    CallersConnection,
    CallersSyncConnection,
    End,
    Params,
    Rows,
    Run,
    Steps,
)

STATEMENTS: Any = None


class Broken(Exception):
    pass


class Answers:
    """What both kinds of connection do: note what is asked, and answer `fails` with an error."""

    def __init__(self) -> None:
        self.asked: list[object] = []

    def answer(self, name: str, params: Params) -> Rows:
        self.asked.append((name, dict(params)))
        if name == "fails":
            raise Broken(name)
        return [(name,)]


class Sync(CallersSyncConnection):
    def run(self, name: str, params: Params) -> Rows:
        rows: Rows = self.target.answer(name, params)
        return rows

    def roll_back(self) -> None:
        self.target.asked.append("rollback")

    def close(self) -> None:
        self.target.asked.append("close")


class Async(CallersAsyncConnection):
    async def run(self, name: str, params: Params) -> Rows:
        await asyncio.sleep(0)
        rows: Rows = self.target.answer(name, params)
        return rows

    async def roll_back(self) -> None:
        self.target.asked.append("rollback")

    async def close(self) -> None:
        self.target.asked.append("close")


def several(connection: CallersConnection) -> Steps[str]:
    first = yield Run("one", {"a": 1})
    try:
        yield Run("fails")
    except Broken as error:
        yield End.ROLL_BACK
        first += [(str(error),)]
    yield End.CLOSE
    return f"{first} and {(yield Run('two'))}"


def refusing(connection: CallersConnection) -> Steps[None]:
    """As a fence does: an error is expected, and a refusal is raised after it."""
    with suppress(Broken):
        yield Run("fails")
    raise PermissionError("refused")


KINDS: list[Callable[..., CallersConnection]] = [Sync, Async]


@pytest.mark.parametrize("kind", KINDS)
async def test_a_step_asks_the_same_of_every_kind_of_connection(kind: Callable[..., CallersConnection]) -> None:
    target = Answers()
    assert await kind(target, STATEMENTS).perform(several) == "[('one',), ('fails',)] and [('two',)]"
    assert target.asked == [("one", {"a": 1}), ("fails", {}), "rollback", "close", ("two", {})]


@pytest.mark.parametrize("kind", KINDS)
async def test_a_refusal_after_an_expected_error_does_not_name_it(kind: Callable[..., CallersConnection]) -> None:
    async def ask() -> None:
        await kind(Answers(), STATEMENTS).perform(refusing)

    with pytest.raises(PermissionError) as caught:
        await ask()
    assert (caught.value.__context__, caught.value.__cause__) == (None, None)


@pytest.mark.parametrize("kind", KINDS)
async def test_an_error_keeps_no_connection_alive_in_a_circle(kind: Callable[..., CallersConnection]) -> None:
    def unheeding(connection: CallersConnection) -> Steps[None]:
        yield Run("fails")

    async def ask() -> weakref.ref[Any]:
        connection = kind(Answers(), STATEMENTS)
        try:
            await connection.perform(unheeding)
        except Broken:
            return weakref.ref(connection)
        raise AssertionError("it fails")

    gc.disable()
    try:
        assert (await ask())() is None
    finally:
        gc.enable()


async def test_on_a_sync_connection_all_is_done_before_the_await() -> None:
    target = Answers()
    done = Sync(target, STATEMENTS).perform(several)
    assert len(target.asked) == 5
    assert not inspect.iscoroutine(done)


async def test_on_an_async_connection_nothing_begins_before_the_await_and_it_may_be_closed_instead() -> None:
    target = Answers()
    pending: Awaitable[str] = Async(target, STATEMENTS).perform(several)
    assert inspect.iscoroutine(pending)
    pending.close()  # no warning: filterwarnings makes one an error
    assert target.asked == []


async def test_a_cancelled_await_reaches_the_step() -> None:
    target, seen = Answers(), list[str]()

    def heeding(connection: CallersConnection) -> Steps[None]:
        try:
            yield Run("one")
        except asyncio.CancelledError:
            seen.append("cancelled")
            yield End.CLOSE
            raise

    task = asyncio.ensure_future(Async(target, STATEMENTS).perform(heeding))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (seen, target.asked) == (["cancelled"], ["close"])
