"""Work that is cancelled at every one of its awaits leaves nothing behind that outlasts a lease."""

import asyncio
import itertools
import types
from collections.abc import Coroutine, Generator
from typing import Any

import pytest

import fencehold
from tests.across_packages.faults.uses import Use

LEASE_S = 0.3


@types.coroutine
def cancelled_at(nth: int, work: Coroutine[Any, Any, None]) -> Generator[Any, Any, bool]:
    """Cancel the running task when `work` waits for the nth time; False if it never waited so often."""
    task = asyncio.current_task()
    assert task is not None
    go_on, value = work.send, None
    for waits in itertools.count(1):
        try:
            waited_for = go_on(value)
        except StopIteration:
            return waits > nth
        if waits == nth:
            task.cancel()
        try:
            go_on, value = work.send, (yield waited_for)
        except BaseException as error:
            go_on, value = work.throw, error
    raise AssertionError


@pytest.mark.long
@pytest.mark.limit(240)
@pytest.mark.parametrize("database", ["sqlite", "postgres"])
@pytest.mark.fault("cancel", "each")
async def test_cancelled_at_every_await_it_can_be_done_again(
    database: str, capability: str, request: pytest.FixtureRequest
) -> None:
    before = asyncio.all_tasks()
    async with (
        fencehold.connect(request.getfixturevalue(f"{database}_url")) as store,
        Use(store, capability, LEASE_S) as use,
    ):
        await use.work()
        for nth in itertools.count(1):
            task = asyncio.ensure_future(cancelled_at(nth, use.work()))
            await asyncio.wait([task])
            if not task.cancelled() and task.exception() is None and not task.result():
                break
            await use.recovers()
        assert nth > 3
    assert asyncio.all_tasks() == before
