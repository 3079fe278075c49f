"""Which callbacks a caller waits for: those of the transition it asked for, and those of a stop; no later ones."""

from __future__ import annotations

import asyncio

import pytest

from fencehold.model.election.election import LockState
from fencehold.model.errors import ConfigurationError
from fencehold.runtime.core.callbacks import Dispatcher
from tests.fencehold.runtime.election.faces import Face, leased, now_s, on_both, until
from tests.fencehold.testing.simulation.on_virtual_time import virtual


@on_both
async def test_step_down_does_not_wait_for_callbacks_of_the_next_term(face: Face) -> None:
    told: list[str] = []

    @face.lock.on_acquired
    async def slow() -> None:
        await asyncio.sleep(3 if told else 0)
        told.append("acquired")

    @face.lock.on_released
    async def until_the_next_term() -> None:
        await until(lambda: face.lock.is_leader)
        told.append("released")

    await face.lock.start()
    assert await face.lock.wait_for_leadership()
    await face.lock.step_down()
    assert told == ["acquired", "released"]
    assert await face.lock.wait_for_leadership()
    assert told == ["acquired", "released", "acquired"]


@on_both
async def test_step_down_waits_for_on_error_of_a_broken_on_released_though_the_next_term_has_begun(face: Face) -> None:
    told: list[str] = []
    face.lock.on_error(lambda error: told.append(str(error)))

    @face.lock.on_released
    async def broken() -> None:
        await until(lambda: face.lock.is_leader)
        raise ValueError("mine")

    await face.lock.start()
    assert await face.lock.wait_for_leadership()
    await face.lock.step_down()
    assert told == ["mine"]


@on_both
async def test_wait_for_leadership_answers_false_after_the_callbacks_of_the_stop(face: Face) -> None:
    told: list[str] = []

    @face.lock.on_stopped
    async def slow() -> None:
        await asyncio.sleep(1)
        told.append("stopped")

    await face.lock.start()
    assert await face.lock.wait_for_leadership()
    face.lose_to_another()
    await until(lambda: not face.lock.is_leader)
    waiting = asyncio.ensure_future(face.lock.wait_for_leadership())
    await asyncio.sleep(0)
    stopping = asyncio.ensure_future(face.lock.shutdown())
    assert await waiting is False
    assert told == ["stopped"]
    await stopping


@on_both
async def test_wait_for_leadership_waits_for_the_callbacks_of_a_stop_until_its_timeout(face: Face) -> None:
    @face.lock.on_stopped
    async def slow() -> None:
        await asyncio.sleep(9)

    await face.lock.start()
    stopping = asyncio.ensure_future(face.lock.shutdown())
    await until(lambda: face.lock.state is LockState.STOPPED)
    began_s = now_s()
    assert await face.lock.wait_for_leadership(3) is False
    assert now_s() - began_s == pytest.approx(3, abs=0.1)
    assert await face.lock.wait_for_leadership() is False
    assert now_s() - began_s == pytest.approx(9, abs=0.1)
    await stopping


@virtual
async def test_wait_for_leadership_raises_a_mistake_after_on_error_and_on_stopped_ran() -> None:
    face = await leased()
    told: list[str] = []

    @face.lock.on_error
    async def slow(error: Exception) -> None:
        await asyncio.sleep(1)
        told.append("error")

    face.lock.on_stopped(lambda: told.append("stopped"))
    face.is_a_mistake()
    waiting = asyncio.ensure_future(face.lock.wait_for_leadership())
    with pytest.raises(ConfigurationError):
        await face.lock.start()
    with pytest.raises(ConfigurationError):
        await waiting
    assert told == ["error", "stopped"]


@virtual
async def test_who_waits_for_a_callback_is_woken_when_it_is_dropped() -> None:
    dispatcher = Dispatcher(lambda error, callback: None)
    dispatcher.send(asyncio.Event().wait)
    waiting = asyncio.ensure_future(dispatcher.drain(60))
    await asyncio.sleep(1)
    dispatcher.stop()
    assert await waiting
    assert now_s() == pytest.approx(1)
