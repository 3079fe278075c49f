"""The delivery of callbacks at its edges: stopped and used again, hurried at the instant of its own limit."""

from __future__ import annotations

import asyncio

import pytest

from fencehold.runtime.core.callbacks import ABANDON_S, CALLBACK_LIMIT_S, WAITING_MAX, Dispatcher
from tests.fencehold.testing.simulation.on_virtual_time import virtual


async def hangs() -> None:
    await asyncio.Event().wait()


@virtual
async def test_what_is_sent_right_after_a_stop_is_delivered() -> None:
    told: list[str] = []
    dispatcher = Dispatcher(lambda error, callback: None)
    dispatcher.send(hangs)
    await asyncio.sleep(1)
    assert dispatcher.stop() == ["hangs"]
    dispatcher.send(told.append, "next")
    assert await dispatcher.drain(1)
    assert told == ["next"]


@pytest.mark.parametrize("after_s", [0, ABANDON_S / 2])
def test_a_term_may_end_while_a_callback_is_being_cut_off(after_s: float) -> None:
    @virtual
    async def run() -> None:
        errors: list[Exception] = []
        dispatcher = Dispatcher(lambda error, callback: errors.append(error))
        begun = asyncio.Event()

        async def stubborn() -> None:
            begun.set()
            while True:
                try:
                    await asyncio.Event().wait()
                except asyncio.CancelledError:
                    if errors:
                        raise

        dispatcher.send(stubborn)
        await begun.wait()
        ended = asyncio.Event()

        def end_term() -> None:
            dispatcher.hurry()
            ended.set()

        loop = asyncio.get_running_loop()
        loop.call_at(loop.time() + CALLBACK_LIMIT_S + after_s, end_term)
        assert await dispatcher.drain(60)
        assert ended.is_set()
        assert [str(error).split(" ")[0] for error in errors] == ["callback"]
        dispatcher.stop()

    run()


@virtual
async def test_of_more_callbacks_than_can_wait_the_oldest_is_dropped_and_reported() -> None:
    errors: list[Exception] = []
    told: list[int] = []
    dispatcher = Dispatcher(lambda error, callback: errors.append(error))
    for number in range(WAITING_MAX + 1):
        dispatcher.send(told.append, number)
    assert await dispatcher.drain(1)
    assert told == list(range(1, WAITING_MAX + 1))
    assert len(errors) == 1
