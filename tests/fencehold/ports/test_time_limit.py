"""A limit ends its block with TimeoutError, whatever has happened to the task before; a cancel stays a cancel."""

import asyncio

import pytest

from fencehold.ports.time_limit import TimeLimit
from tests.fencehold.testing.simulation.on_virtual_time import virtual


@virtual
async def test_a_limit_that_is_over_is_a_timeout() -> None:
    with pytest.raises(TimeoutError):
        async with TimeLimit(1):
            await asyncio.sleep(2)


@virtual
async def test_none_is_no_limit() -> None:
    async with TimeLimit(None):
        await asyncio.sleep(2)


@virtual
async def test_a_limit_is_a_timeout_in_a_task_that_was_cancelled_before_it_began() -> None:
    ended: list[str] = []

    async def cleans_up() -> None:
        try:
            await asyncio.sleep(9)
        finally:
            try:
                async with TimeLimit(1):
                    await asyncio.sleep(9)
            except TimeoutError:
                ended.append("in time")

    task = asyncio.ensure_future(cleans_up())
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    assert (ended, task.cancelled()) == (["in time"], True)


@virtual
async def test_a_cancel_inside_is_a_cancel() -> None:
    async def waits() -> None:
        async with TimeLimit(5):
            await asyncio.sleep(9)

    task = asyncio.ensure_future(waits())
    await asyncio.sleep(1)
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
