"""The simulated network between a process and the store: requests and answers may be late, or be lost.

A request can be lost before it is executed, and an answer after that; the network can be silent for a while, and hints
can be lost or come twice. At the end of this file: a whole store as one process sees it, which is the memory backend
with every call sent over that process's `Line`.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, TypeVar, cast

from fencehold.backends.absent import NoCheckup, NoTables
from fencehold.backends.memory.backend import MemoryFences, MemoryLeases, Shelf
from fencehold.backends.memory.hints import MemoryHints
from fencehold.backends.memory.items import MemoryItems
from fencehold.backends.memory.outbox.events import MemoryEventAdmin, MemoryEventPort, MemoryEventsInTx
from fencehold.backends.memory.outbox.shelf import EventShelf
from fencehold.model.election.lock_errors import LeaderLockError
from fencehold.model.election.places import UNKNOWN, Place
from fencehold.model.errors import FenceholdError, Unavailable, Uncertain
from fencehold.ports.fence import FencePort
from fencehold.ports.leases import LeasePort
from fencehold.ports.wakeup import Hint
from fencehold.testing.simulation.loop import SimulationLoop

T = TypeVar("T")
P = TypeVar("P")

QUICK_S = 0.1
STUTTER_S_MAX = 0.2
HANG_UP_S_MAX = 2.0
STORE = "the store"
EPOCH_0_S = 1_700_000_000.0


@dataclass
class Weather:
    """The chances of each disturbance per call, for one line.

    The defaults are a calm network, which `Line.heal` sets.
    """

    latency_s: float = 0.01
    cut_before: float = 0.0
    cut_after: float = 0.0
    tail: float = 0.0
    tail_s: float = 0.0
    stutter: float = 0.0
    pause_on_answer: float = 0.0
    hint_lost: float = 0.0
    hint_twice: float = 0.0


class Disturbed(Protocol):
    """The simulated process at one end of the line, as the line sees it: it is told of each disturbance."""

    def disturb(self, for_s: float = 0.0) -> None: ...
    def answer_lost(self) -> None: ...


class Watch(Protocol):
    """An observer of one process's requests and answers; it is called on the thread that sends the request."""

    def sending(self, verb: str, args: tuple[Any, ...]) -> None: ...
    def answered(self, verb: str, args: tuple[Any, ...], answer: Any) -> None: ...


class Line:
    """The network connection of one process to the store.

    A caller waits no longer than the limit of its call; a request that was sent may still be executed after that.
    """

    def __init__(self, loop: SimulationLoop, draw: Callable[[], float], weather: Weather, lease_s: float) -> None:
        self.weather = weather
        self.hole_until_s = 0.0
        self.is_down = False  # the store at the other end
        self.pause: Callable[[], None] = lambda: None
        self.node: Disturbed
        self._loop, self._draw, self._lease_s = loop, draw, lease_s
        self._generation = 0

    @property
    def is_silent(self) -> bool:
        return self._loop.time() < self.hole_until_s

    def heal(self) -> None:
        """End all disturbances: drop the requests that are under way; from now on everything arrives."""
        self.node.disturb()
        self.weather = Weather()
        self.hole_until_s = 0.0
        self._generation += 1

    # --- one call ---

    async def ask(self, execute: Callable[[], T], limit_s: float) -> T:
        """Send a request from the running thread and return its answer.

        `execute` is called at the store when the request arrives.

        Raises Unavailable if the store is not reached, Uncertain if no answer comes within `limit_s` or the answer is
        lost. An error that `execute` raises is the answer, and is raised here.
        """
        side, weather, draw = asyncio.get_running_loop(), self.weather, self._draw
        if draw() < weather.stutter:  # so that a pause can fall between reading the clock and sending
            self.node.disturb()
            await asyncio.sleep(draw() * STUTTER_S_MAX)
        if self.is_down or draw() < weather.cut_before:
            self.node.disturb()
            await asyncio.sleep(min(limit_s, self._latency_s()))
            raise Unavailable("The store is not there.")
        answer: asyncio.Future[T] = side.create_future()
        limit = side.call_later(limit_s, _give_up, answer)
        delay_s = self._request_delay_s()
        if delay_s is not None:
            self._loop.call_later(delay_s, self._arrive, execute, answer, side, self._generation)
        try:
            return await answer
        finally:
            limit.cancel()

    def hang_up(self, notice: Callable[[], None]) -> None:
        """Close the connection: `notice`, by which the store learns of that, is called at the store some time later."""
        self._loop.call_later(self._draw() * HANG_UP_S_MAX, notice)

    def tell(self, side: asyncio.AbstractEventLoop, hint: Callable[[], None]) -> None:
        """Call `hint` on the thread `side`: a message that the store sends unasked.

        It may be lost, and it may come twice.
        """
        if self.is_silent or self._draw() < self.weather.hint_lost:
            return
        for _ in range(2 if self._draw() < self.weather.hint_twice else 1):
            side.call_later(self._draw() * QUICK_S, hint)

    def _request_delay_s(self) -> float | None:
        """Return after how many seconds a request arrives; None: it never arrives."""
        if not self.is_silent:
            return self._latency_s()
        self.node.disturb()
        fate = self._draw()
        if fate < 0.2:
            return None
        return self._latency_s() if fate < 0.6 else self._draw() * 2 * self._lease_s

    def _latency_s(self) -> float:
        weather, draw = self.weather, self._draw
        if draw() < weather.tail:
            self.node.disturb()
            return draw() * weather.tail_s
        return weather.latency_s * (0.2 + draw())

    def _arrive(
        self, execute: Callable[[], T], answer: asyncio.Future[T], side: asyncio.AbstractEventLoop, generation: int
    ) -> None:
        if generation != self._generation:
            return
        result: T | Exception
        if self.is_down:
            result = Uncertain("The connection was reset.")
        else:
            try:
                result = execute()
            except (FenceholdError, LeaderLockError) as error:
                result = error
            if self.is_silent:
                self.node.disturb()
                return
            if self._draw() < self.weather.cut_after:
                self.node.answer_lost()
                result = Uncertain("The answer was lost.")
        if self._draw() < self.weather.pause_on_answer:
            self.pause()
        side.call_later(self._latency_s(), _settle, answer, result)


def _give_up(answer: asyncio.Future[Any]) -> None:
    if not answer.done():
        answer.set_exception(Uncertain("No answer within the limit."))


def _settle(answer: asyncio.Future[Any], result: Any) -> None:
    if answer.done():
        return
    if isinstance(result, Exception):
        answer.set_exception(result)
    else:
        answer.set_result(result)


# --- a whole port ---


class _PortOverLine:
    def __init__(self, port: Any, line: Line, watch: Watch | None) -> None:
        self._port, self._line, self._watch = port, line, watch

    def __getattr__(self, verb: str) -> Callable[..., Coroutine[Any, Any, Any]]:
        execute, place = getattr(self._port, verb), _place_of_limit(getattr(type(self._port), verb))
        line, watch = self._line, self._watch

        async def ask(*args: Any, **options: Any) -> Any:
            if watch is not None:
                watch.sending(verb, args)
            limit_s = args[place] if len(args) > place else options["limit_s"]
            answer = await line.ask(lambda: at_once(execute(*args, **options)), limit_s)
            if watch is not None:
                watch.answered(verb, args, answer)
            return answer

        self.__dict__[verb] = ask
        return ask


@functools.cache
def _place_of_limit(verb: Callable[..., object]) -> int:
    return list(inspect.signature(verb).parameters).index("limit_s") - 1


def over_line(port: P, line: Line, watch: Watch | None = None) -> P:
    """Return the port as one process sees it: every call is sent over the line.

    `watch`, if given, is told of each call.
    """
    return cast(P, _PortOverLine(port, line, watch))


def at_once(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never waits, and return its result. Raises AssertionError if it does wait."""
    try:
        work.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    raise AssertionError("the memory backend answers without waiting")


def new_shelf(loop: SimulationLoop, place: Place = UNKNOWN) -> Shelf:
    """Return empty tables of the memory backend, for a store whose clock is the simulation's true time.

    `place` is the server's identity (timeline and system), which changes at a promotion.
    """
    return Shelf(now_s=lambda: EPOCH_0_S + loop.time(), place=place, origin=place)


class HintsOverLine(MemoryHints):
    """Hints of changed leases or added events: unasked messages of the store that something may have changed.

    `relays` is the store's list of functions to call with each hint. Once the process listens, hints reach it over its
    line, so they may be lost or come twice.
    """

    def __init__(self, relays: list[Hint], line: Line) -> None:
        super().__init__(relays)
        self._line = line

    def on_hint(self, hint: Hint) -> None:
        side, line = asyncio.get_running_loop(), self._line
        self._mine.append(lambda what, name: line.tell(side, partial(hint, what, name)))


class EventsOverLine:
    def __init__(self, shelf: EventShelf, line: Line, watch: Watch | None) -> None:
        self.schema = NoTables(STORE)
        self.port = over_line(MemoryEventPort(shelf), line, watch)
        self.in_tx = over_line(MemoryEventsInTx(shelf), line)
        self.admin = over_line(MemoryEventAdmin(shelf), line)
        self.hints = HintsOverLine(shelf.relays, line)

    async def close(self) -> None:
        self.hints.close()


class ItemsOverLine(MemoryItems):
    def __init__(self, shelf: Shelf, kind: str, line: Line, watch: Watch | None) -> None:
        super().__init__(shelf.items, kind)
        self.port = self.leases = self.admin = over_line(self.port, line, watch)


class BackendOverLine:
    """The memory backend as one process sees it: calls go over its line.

    `watch` sees the calls for events and items.
    """

    name = STORE
    leases: LeasePort
    fences: FencePort

    def __init__(self, shelf: Shelf, line: Line, watch: Watch | None = None) -> None:
        self.leases = over_line(MemoryLeases(shelf), line)
        self.fences = MemoryFences(shelf)
        self.wakeup = HintsOverLine(shelf.hints, line)
        self.checkup = NoCheckup(f"{STORE} is simulated")
        self.schema = NoTables(STORE)
        self._shelf, self._line, self._watch = shelf, line, watch

    def events(self, table: str) -> EventsOverLine:
        return EventsOverLine(self._shelf.outbox(table), self._line, self._watch)

    def items(self, kind: str) -> ItemsOverLine:
        return ItemsOverLine(self._shelf, kind, self._line, self._watch)

    async def open(self, limit_s: float) -> None:
        return None

    async def close(self) -> None:
        return None
