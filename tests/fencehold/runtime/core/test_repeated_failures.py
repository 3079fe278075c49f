"""What is said while a store is away: the first word of each kind at once, then rarely, and at the end once."""

from __future__ import annotations

import asyncio
import itertools
from types import SimpleNamespace
from typing import Any

import pytest

from fencehold.model.errors import ConfigurationError, Unavailable
from fencehold.ports.fact_table import OutageFacts
from fencehold.runtime.core.repeated_failures import OUTAGE_PAUSE_S_MAX, REMIND_EVERY_S, Outage
from tests.fencehold.testing.simulation.on_virtual_time import LoopClock, virtual


class SetClock:
    def __init__(self) -> None:
        self.s = 1000.0

    def now_s(self) -> float:
        return self.s

    async def wait(self, event: asyncio.Event, timeout_s: float | None) -> bool:
        raise AssertionError("nobody waits here")


class Scene:
    """An outage on a clock that is set by hand; `told` has, for each word, when it was said and what."""

    def __init__(self) -> None:
        self.clock = SetClock()
        self.began_s = self.clock.s
        self.told: list[tuple[float, str, dict[str, Any]]] = []
        self.outage = Outage(OutageFacts(self), self.clock)

    def fact(self, event: str, **fields: Any) -> None:
        self.told.append((self.clock.s - self.began_s, event, fields))

    def fails(self, code: str) -> None:
        self.outage.failed(Unavailable(f"{code}.", hint="Wait.", code=code))

    def fails_every_second(self, until_s: float, *codes: str) -> None:
        while self.clock.s - self.began_s < until_s:
            for code in codes:
                self.fails(code)
            self.clock.s += 1

    def when(self, code: str) -> list[float]:
        return [at_s for at_s, _, fields in self.told if fields.get("code") == code]


def test_the_first_failure_is_told_at_once_and_then_once_a_minute() -> None:
    scene = Scene()
    scene.fails_every_second(200, "unreachable")
    assert REMIND_EVERY_S == 60
    assert scene.when("unreachable") == [0, 60, 120, 180]
    assert [(f["waited_s"], f["tries"]) for _, _, f in scene.told] == [(0, 1), (60, 61), (120, 121), (180, 181)]
    assert {event for _, event, _ in scene.told} == {"store_unreachable"}


def test_each_new_reason_is_told_at_once_and_each_has_a_minute_of_its_own() -> None:
    scene = Scene()
    scene.fails_every_second(30, "unreachable")
    scene.fails_every_second(100, "unreachable", "starting")
    assert (scene.when("unreachable"), scene.when("starting")) == ([0, 60], [30, 90])


def test_a_word_has_the_reason_and_what_to_do() -> None:
    scene = Scene()
    scene.fails("starting")
    [(_, event, said)] = scene.told
    assert (event, said["code"], said["error"], said["hint"]) == ("store_unreachable", "starting", "starting.", "Wait.")


def test_the_end_is_told_once_with_how_long_it_took() -> None:
    scene = Scene()
    scene.fails_every_second(70, "unreachable")
    scene.outage.answered()
    scene.outage.answered()
    at_s, event, fields = scene.told[-1]
    assert (at_s, event, fields["waited_s"]) == (70, "store_answers", 70)
    assert len(scene.told) == 3


def test_nothing_is_told_of_a_store_that_was_never_away() -> None:
    scene = Scene()
    scene.outage.answered()
    assert scene.told == []


def test_after_the_end_the_next_failure_is_a_first_one_again() -> None:
    scene = Scene()
    scene.fails("unreachable")
    scene.clock.s += 1
    scene.outage.answered()
    scene.fails("unreachable")
    assert scene.when("unreachable") == [0, 1]
    assert (scene.told[-1][2]["waited_s"], scene.told[-1][2]["tries"]) == (0, 1)


def waiting(told: list[tuple[float, str]]) -> Outage:
    loop = asyncio.get_running_loop()
    sink: Any = SimpleNamespace(fact=lambda event, **_: told.append((loop.time(), event)))
    return Outage(OutageFacts(sink), LoopClock())


@virtual
async def test_whoever_waits_asks_again_after_two_seconds_at_most_until_it_is_answered() -> None:
    told: list[tuple[float, str]] = []
    asked_s: list[float] = []
    began_s = asyncio.get_running_loop().time()

    async def ask() -> str:
        asked_s.append(asyncio.get_running_loop().time())
        if asked_s[-1] - began_s < 90:
            raise Unavailable("Away.", code="unreachable")
        return "here"

    assert await waiting(told).wait_for(ask) == "here"
    assert max(b - a for a, b in itertools.pairwise(asked_s)) < OUTAGE_PAUSE_S_MAX + 0.001
    assert [event for _, event in told] == ["store_unreachable", "store_unreachable", "store_answers"]
    assert told[0][0] == asked_s[0] == began_s
    assert began_s + 60 <= told[1][0] < began_s + 60.001 + OUTAGE_PAUSE_S_MAX


@virtual
async def test_a_mistake_is_raised_at_once_also_in_the_middle_of_an_outage() -> None:
    told: list[tuple[float, str]] = []
    answers = iter([Unavailable("Away.", code="unreachable"), ConfigurationError("No right.", code="no_permission")])

    async def ask() -> str:
        raise next(answers)

    with pytest.raises(ConfigurationError):
        await waiting(told).wait_for(ask)
    assert [event for _, event in told] == ["store_unreachable"]


@virtual
async def test_whoever_gives_up_raises_the_last_error_within_the_time_it_was_given() -> None:
    began_s = asyncio.get_running_loop().time()

    async def ask() -> str:
        raise Unavailable("Away.", code="unreachable")

    with pytest.raises(Unavailable):
        await waiting([]).wait_for(ask, within_s=5)
    assert 4.999 - OUTAGE_PAUSE_S_MAX < asyncio.get_running_loop().time() - began_s < 5.001
