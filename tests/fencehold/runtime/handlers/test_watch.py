"""What the watch over handlers tells, and when it gives up, on a clock that is set by hand."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import fencehold
from fencehold.model.outbox.settings import worker_settings
from fencehold.ports.fact_table import WorkerFacts
from fencehold.runtime.handlers.watch import WARNINGS_MAX, HandlerWatch
from fencehold.runtime.outbox.context import ClaimedEvent


def call() -> Any:
    """As the task of a handler that does not end."""
    return asyncio.get_running_loop().create_future()


class Clock:
    def __init__(self) -> None:
        self.s = 1000.0

    def now_s(self) -> float:
        return self.s

    async def wait(self, event: asyncio.Event, timeout_s: float | None) -> bool:
        raise AssertionError("the test looks by itself")


class Scene:
    """A worker with a lease of 30 s, so that handlers count as slow after 45 s; it gives up after 60 s."""

    def __init__(self, concurrency: int = 10, **settings: Any) -> None:
        self.settings = worker_settings(30.0, concurrency=concurrency, give_up_after=60, **settings)
        self.claimed_events: dict[int, ClaimedEvent] = {}
        self.strays: dict[int, ClaimedEvent] = {}
        self._stopping = False
        self.told: list[tuple[str, dict[str, Any]]] = []
        self.given_up: list[str] = []
        self.clock = Clock()
        self.facts = WorkerFacts(self, outbox="outbox", worker_id="w")
        worker: Any = self
        self.watch = HandlerWatch(worker, worker, asyncio.get_running_loop(), threading.get_ident(), self.clock)

    def fact(self, event: str, **fields: Any) -> None:
        self.told.append((event, fields))

    def handler_name(self, claim: fencehold.Claim) -> str:
        return f"app.{claim.event_type}"

    def _give_up(self, error: fencehold.WorkerStuck) -> None:
        self.given_up.append(error.message)

    def begin(self, event_id: int, task: Any = None) -> ClaimedEvent:
        claimed = ClaimedEvent(fencehold.Claim(event_id, f"t{event_id}", "send", "{}"), self.clock, self.clock.s, 27.0)
        claimed.task = task or call()
        self.claimed_events[id(claimed)] = claimed
        return claimed

    async def after(self, seconds: int, *, turning: bool = True) -> None:
        """So many looks, one a second; `turning`: the event loop answers in between."""
        for _ in range(seconds):
            self.clock.s += 1
            if turning:
                await asyncio.sleep(0)
                await asyncio.sleep(0)
            self.watch._look()

    def ages(self, event: str) -> list[float]:
        return [fields["age_s"] for name, fields in self.told if name == event]

    def count(self, event: str) -> int:
        return sum(1 for name, _ in self.told if name == event)


async def test_a_slow_handler_is_told_again_each_time_it_has_taken_twice_as_long() -> None:
    scene = Scene()
    scene.begin(1)
    await scene.after(400)
    assert scene.ages("handler_slow") == [45, 90, 180, 360]


async def test_of_a_handler_of_many_events_it_is_told_once() -> None:
    scene = Scene()
    task = call()
    for event_id in range(5):
        scene.begin(event_id, task)
    await scene.after(60)
    assert scene.count("handler_slow") == 1


async def test_of_many_slow_handlers_all_are_told_but_not_all_at_once() -> None:
    scene = Scene(concurrency=100)
    for event_id in range(3 * WARNINGS_MAX):
        scene.begin(event_id)
    await scene.after(45)
    assert scene.count("handler_slow") == WARNINGS_MAX
    await scene.after(2)
    assert len({fields["id"] for name, fields in scene.told if name == "handler_slow"}) == 3 * WARNINGS_MAX


async def test_a_handler_that_cleans_up_after_its_lease_was_lost_is_not_called_hung() -> None:
    scene = Scene()
    claimed = scene.begin(1)
    await scene.after(10)
    claimed.end("lease_lost")
    await scene.after(2)
    assert scene.count("handler_hung") == 0
    await scene.after(1)
    assert [(f["place"], f["reason"]) for name, f in scene.told if name == "handler_hung"] == [("taken", "lease_lost")]


async def test_handlers_that_are_slow_but_hold_their_leases_are_never_given_up() -> None:
    scene = Scene(concurrency=2)
    scene.begin(1)
    scene.begin(2)
    await scene.after(200)
    assert scene.ages("worker_stuck") == [45, 90, 137], "then when that has lasted twice as long"
    assert scene.given_up == []


async def test_handlers_that_may_take_a_day_are_told_of_when_all_places_have_been_taken_for_5_minutes() -> None:
    """Nothing else would say that new events wait."""
    scene = Scene(concurrency=2, max_processing="24h")
    scene.begin(1)
    await scene.after(100)
    scene.begin(2)
    await scene.after(299)
    assert scene.count("worker_stuck") == 0
    await scene.after(1)
    assert [(f["handler"], f["age_s"]) for name, f in scene.told if name == "worker_stuck"] == [("app.send", 400)]
    assert scene.count("handler_slow") == 0


async def test_with_one_place_left_it_does_not_give_up_and_without_one_it_does() -> None:
    scene = Scene(concurrency=2)
    scene.begin(1).end("max_processing")
    await scene.after(100)
    assert (scene.count("worker_stuck"), scene.given_up) == (0, [])
    scene.begin(2).end("max_processing")
    await scene.after(59)
    assert scene.given_up == []
    await scene.after(1)
    assert "all its 2 places have been taken for 60 s" in scene.given_up[0]
    assert "app.send, has run for 160.0 s" in scene.given_up[0]


async def test_a_loop_that_does_not_turn_is_told_after_5_s_and_given_up_after_the_limit() -> None:
    scene = Scene()
    await scene.after(1)
    await scene.after(5, turning=False)
    blocked = [fields for name, fields in scene.told if name == "worker_loop_blocked"]
    assert [fields["silent_s"] for fields in blocked] == [5]
    assert __file__ in blocked[0]["where"] or "handlers/watch.py" in blocked[0]["where"]
    await scene.after(54, turning=False)
    assert scene.given_up == []
    await scene.after(1, turning=False)
    assert "its event loop has not turned for 60 s" in scene.given_up[0]


async def test_a_loop_that_turns_again_is_well_again() -> None:
    scene = Scene()
    for _ in range(10):
        await scene.after(1)
        await scene.after(40, turning=False)
    assert scene.given_up == []
    assert scene.count("worker_loop_blocked") == 10 * 4, "each time after 5, 10, 20 and 40 s"


async def test_a_process_that_was_frozen_as_a_whole_is_not_taken_for_one_with_a_blocked_loop() -> None:
    """An hour passes between two looks, and the loop has not yet had its turn to answer."""
    scene = Scene()
    await scene.after(1)
    scene.clock.s += 3600
    scene.watch._look()
    assert (scene.count("worker_loop_blocked"), scene.given_up) == (0, [])
    await scene.after(20)
    assert (scene.count("worker_loop_blocked"), scene.given_up) == (0, [])


async def test_a_worker_that_stops_gives_nothing_up() -> None:
    scene = Scene(concurrency=1)
    scene.begin(1).end("max_processing")
    scene._stopping = True
    await scene.after(100, turning=False)
    assert scene.given_up == []
