"""What /health/live and /health/ready say, on virtual time."""

import asyncio
import time
from collections.abc import Awaitable, Callable

import pytest

from fencehold.cli.worker.health import (
    ANSWER_WITHIN_S,
    ASK_AGAIN_S,
    ASK_EVERY_S,
    BLOCKED_AFTER_S,
    SILENT_S_MAX,
    Health,
    Problem,
)
from fencehold.model.errors import Unavailable
from fencehold.runtime.core.clock import BootClock
from tests.fencehold.testing.simulation.on_virtual_time import LoopClock, virtual


def health() -> Health:
    return Health(now_s=LoopClock().now_s)


def codes(problems: list[Problem]) -> list[str]:
    return [problem.code for problem in problems]


async def fine() -> None: ...


async def hung() -> None:
    await asyncio.Event().wait()


def failing(error: Exception) -> Callable[[], Awaitable[None]]:
    async def ask() -> None:
        raise error

    return ask


@virtual
async def test_it_is_live_from_the_start_and_ready_once_the_database_has_answered() -> None:
    now = health()
    assert (now.live(), codes(now.ready())) == ([], ["starting"])
    async with now.watched(fine):
        await asyncio.sleep(0.01)
        assert (now.live(), now.ready()) == ([], [])
        await asyncio.sleep(1000)
        assert (now.live(), now.ready()) == ([], [])


@virtual
async def test_a_database_that_hangs_makes_it_not_ready_and_stays_live() -> None:
    now = health()
    async with now.watched(hung):
        await asyncio.sleep(ANSWER_WITHIN_S - 0.1)
        assert codes(now.ready()) == ["starting"]
        await asyncio.sleep(0.2)
        assert (now.live(), codes(now.ready())) == ([], ["no_answer"])


@virtual
async def test_an_error_is_the_reason_until_the_database_answers_again() -> None:
    now, answers = (
        health(),
        [failing(Unavailable("gone", code="unreachable")), fine, failing(ZeroDivisionError()), fine],
    )
    seen = []

    async def ask() -> None:
        await answers.pop(0)()

    async with now.watched(ask):
        for pause_s in (ASK_AGAIN_S, ASK_EVERY_S, ASK_AGAIN_S, 0.0):
            await asyncio.sleep(0.01)
            seen.append(codes(now.ready()))
            await asyncio.sleep(pause_s)
    assert seen == [["unreachable"], [], ["internal_error"], []]


async def test_a_loop_that_does_not_turn_is_not_ready_and_after_its_limit_not_live() -> None:
    ahead_s = 0.0
    now = Health(now_s=lambda: BootClock().now_s() + ahead_s)
    async with now.watched(fine, lambda: 60.0):
        await asyncio.sleep(0.01)
        ahead_s = ANSWER_WITHIN_S + 0.1  # as if the loop had stood still for so long
        assert (now.live(), codes(now.ready())) == ([], ["loop_blocked"])
        ahead_s = 61.0
        assert (codes(now.live()), codes(now.ready())) == (["loop_blocked"], ["loop_blocked"])


@pytest.mark.parametrize("ask", [fine, failing(Unavailable("not begun", code="starting")), hung])
async def test_of_a_loop_that_does_not_turn_only_that_is_said_and_by_what(ask: Callable[[], Awaitable[None]]) -> None:
    ahead_s = 0.0
    now = Health(now_s=lambda: BootClock().now_s() + ahead_s)
    async with now.watched(ask, blocked_by=lambda: "the handler app.send blocks it"):
        await asyncio.sleep(0.01)
        ahead_s = ANSWER_WITHIN_S + 0.4
        [problem] = now.ready()
    assert problem.code == "loop_blocked"
    assert problem.message == "The event loop has not turned for 3 s: the handler app.send blocks it."


async def test_one_that_has_not_begun_says_soon_that_its_loop_is_blocked() -> None:
    ahead_s = 0.0
    now = Health(now_s=lambda: BootClock().now_s() + ahead_s)
    async with now.watched(failing(Unavailable("not begun", code="starting"))):
        await asyncio.sleep(0.01)
        assert codes(now.ready()) == ["starting"]
        ahead_s = BLOCKED_AFTER_S + 0.1
        assert codes(now.ready()) == ["loop_blocked"]


@virtual
async def test_where_nobody_can_ask_the_database_is_not_asked_either() -> None:
    asked = []

    async def ask() -> None:
        asked.append(time.monotonic())

    async with Health(is_served=False, now_s=LoopClock().now_s).watched(ask):
        await asyncio.sleep(100)
    assert asked == []


@virtual
async def test_the_end_of_the_work_ends_the_questions() -> None:
    now = health()
    with pytest.raises(RuntimeError):
        async with now.watched(hung):
            raise RuntimeError
    assert len(asyncio.all_tasks()) == 1
    assert SILENT_S_MAX > ANSWER_WITHIN_S
