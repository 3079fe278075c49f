"""The network between a process and the store: late, cut before or after execution, silent, and with false hints."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from fencehold.backends.memory.no_tables import NoTables
from fencehold.backends.no_checkup import NoCheckup
from fencehold.model.election.leases import Ask, Lease, Refusal, TermKey
from fencehold.model.errors import FenceholdError, LeaseLost, Unavailable, Uncertain
from fencehold.ports.events import Events
from fencehold.ports.fence import DONE, GuardText, Params, RemainingS, SyncTransaction
from fencehold.ports.items import ItemStore
from fencehold.ports.leases import Answer
from fencehold.ports.wakeup import Hint
from fencehold.testing.simulation.loop import Side, SimulationLoop
from fencehold.testing.simulation.referee import Process, Referee
from fencehold.testing.simulation.store import OpenTransaction, SimulatedStore

T = TypeVar("T")

WRITE_LIMIT_S = 3.0
QUICK_S = 0.1
STUTTER_S_MAX = 0.2
HANG_UP_S_MAX = 2.0


@dataclass
class Weather:
    """The chances of each disturbance per call. The defaults are calm weather, which `Line.heal` sets."""

    latency_s: float = 0.01
    cut_before: float = 0.0
    cut_after: float = 0.0
    tail: float = 0.0
    tail_s: float = 0.0
    stutter: float = 0.0
    pause_on_answer: float = 0.0
    hint_lost: float = 0.0
    hint_twice: float = 0.0


class Line:
    """The connection of one process. No call waits longer than its limit; what was sent is executed all the same."""

    def __init__(
        self, loop: SimulationLoop, draw: Callable[[], float], store: SimulatedStore, referee: Referee, weather: Weather
    ) -> None:
        self.store = store
        self.referee = referee
        self.weather = weather
        self.hole_until_s = 0.0
        self.hints: list[Hint] = []
        self.listening = False
        self.pause: Callable[[], None] = _nothing
        self.node: Process
        self._loop = loop
        self._draw = draw
        self._generation = 0
        self._asks = 0
        store.shelf.hints.append(self._hear)

    def heal(self) -> None:
        """Cut what is under way; from now on everything arrives."""
        self.weather = Weather()
        self.hole_until_s = 0.0
        self._generation += 1

    # --- one call ---

    async def ask(self, execute: Callable[[], T], limit_s: float, side: Side) -> T:
        loop, weather, draw = self._loop, self.weather, self._draw
        if draw() < weather.stutter:  # so that a pause can fall between reading the clock and sending
            self._disturb()
            await asyncio.sleep(draw() * STUTTER_S_MAX)
        if self.store.is_down or draw() < weather.cut_before:
            self._disturb()
            await asyncio.sleep(min(limit_s, self._latency_s()))
            raise Unavailable("The store is not there.")
        answer: asyncio.Future[T] = loop.create_future()
        limit = loop.call_later(limit_s, _give_up, answer)
        delay_s = self._request_delay_s()
        if delay_s is not None:
            loop.call_later(delay_s, self._arrive, execute, answer, side, self._generation, context=loop.world)
        try:
            return await answer
        finally:
            limit.cancel()

    def hang_up(self, transaction: OpenTransaction) -> None:
        """The connection is closed: the store notices some time later, or else by its own timeout."""
        self._loop.call_later(self._draw() * HANG_UP_S_MAX, self.store.roll_back, transaction, context=self._loop.world)

    def next_ask(self) -> Callable[[], bool]:
        """Number an acquire. The returned function returns, later, whether it is still the newest."""
        self._asks += 1
        mine = self._asks
        return lambda: mine == self._asks

    def _request_delay_s(self) -> float | None:
        """Return how long a request takes; None: it never arrives."""
        if self._loop.time() >= self.hole_until_s:
            return self._latency_s()
        self._disturb()
        fate = self._draw()
        if fate < 0.2:
            return None
        return self._latency_s() if fate < 0.6 else self._draw() * 2 * self.node.settings.lease_s

    def _latency_s(self) -> float:
        weather, draw = self.weather, self._draw
        if draw() < weather.tail:
            self._disturb()
            return draw() * weather.tail_s
        return weather.latency_s * (0.2 + draw())

    def _arrive(self, execute: Callable[[], T], answer: asyncio.Future[T], side: Side, generation: int) -> None:
        if generation != self._generation:
            return
        result: T | FenceholdError
        if self.store.is_down:
            result = Uncertain("The connection was reset.")
        else:
            try:
                result = execute()
            except (LeaseLost, Unavailable) as error:
                result = error
            if self._loop.time() < self.hole_until_s:
                self._disturb()
                return
            if self._draw() < self.weather.cut_after:
                self._disturb(unless_granted_now=True)
                result = Uncertain("The answer was lost.")
        if self._draw() < self.weather.pause_on_answer:
            self.pause()
        self._loop.call_later(self._latency_s(), _settle, answer, result, context=side.context)

    def _disturb(self, unless_granted_now: bool = False) -> None:
        if not (unless_granted_now and self.referee.granted_now(self.node)):
            self.node.disturb()

    # --- hints ---

    def _hear(self, what: str, name: str) -> None:
        if not self.listening or self._loop.time() < self.hole_until_s or self._draw() < self.weather.hint_lost:
            return
        self.hint(what, name)
        if self._draw() < self.weather.hint_twice:
            self.hint(what, name)

    def hint(self, what: str, name: str) -> None:
        for hint in self.hints:
            self._loop.call_later(self._draw() * QUICK_S, hint, what, name, context=self.node.keeper.context)


def _nothing() -> None:
    return None


def _give_up(answer: asyncio.Future[Any]) -> None:
    if not answer.done():
        answer.set_exception(Uncertain("No answer within the limit."))


def _settle(answer: asyncio.Future[Any], result: Any) -> None:
    if answer.done():
        return
    if isinstance(result, FenceholdError):
        answer.set_exception(result)
    else:
        answer.set_result(result)


class LeasesOverLine:
    def __init__(self, line: Line) -> None:
        self._line = line

    async def acquire(self, ask: Ask, limit_s: float) -> Answer:
        line = self._line
        is_latest = line.next_ask()
        return await line.ask(lambda: line.store.acquire(ask, is_latest()), limit_s, line.node.keeper)

    async def renew(self, keys: Sequence[TermKey], limit_s: float) -> list[Answer]:
        line = self._line
        line.referee.renewing(line.node, keys)
        answers = await line.ask(lambda: line.store.renew(keys), limit_s, line.node.keeper)
        for key, answer in zip(keys, answers, strict=True):
            if isinstance(answer, Refusal):
                line.referee.renewal_refused(key)
        return answers

    async def release(self, keys: Sequence[TermKey], limit_s: float) -> list[Answer]:
        line = self._line
        return await line.ask(lambda: line.store.release(keys), limit_s, line.node.keeper)

    async def read(self, names: Sequence[str], limit_s: float) -> dict[str, Lease]:
        line = self._line
        return await line.ask(lambda: line.store.read(names), limit_s, line.node.keeper)

    async def list(self, prefix: str, limit_s: float) -> list[Lease]:
        raise NotImplementedError("no part of an election lists")

    async def ask_step_down(self, name: str, epoch: int, limit_s: float) -> Answer:
        raise NotImplementedError("the simulated operator speaks to the store itself")


class TransactionOverLine:
    def __init__(self) -> None:
        self.connection: Any = None

    async def execute(self, statement: Any, params: Params = None) -> Any:
        return None


class FencesOverLine:
    """Fenced writes, made on the user's thread."""

    def __init__(self, line: Line) -> None:
        self._line = line

    @asynccontextmanager
    async def transaction(self, key: TermKey, remaining_s: RemainingS) -> AsyncIterator[TransactionOverLine]:
        line = self._line
        opened: list[OpenTransaction] = []
        try:
            transaction = await line.ask(lambda: _opened(line.store.begin(key), opened), WRITE_LIMIT_S, line.node.user)
            yield TransactionOverLine()
            await line.ask(lambda: line.store.commit(transaction), WRITE_LIMIT_S, line.node.user)
        finally:
            if opened and opened[0].is_open:
                line.hang_up(opened[0])

    def transaction_sync(self, key: TermKey, remaining_s: RemainingS) -> AbstractContextManager[SyncTransaction]:
        raise NotImplementedError("a simulated process blocks by other means")

    async def write_guarded(self, key: TermKey) -> int:
        line = self._line
        return await line.ask(lambda: line.store.write_guarded(key), WRITE_LIMIT_S, line.node.user)

    def fence(self, target: object, key: TermKey, over: bool = False) -> Awaitable[None]:
        return DONE

    async def spoil(self, target: object) -> None:
        return None

    def guard(self, key: TermKey) -> GuardText:
        return GuardText("", "", {"key": key})

    async def close(self) -> None:
        return None


def _opened(transaction: OpenTransaction, opened: list[OpenTransaction]) -> OpenTransaction:
    opened.append(transaction)
    return transaction


class WakeupOverLine:
    def __init__(self, line: Line) -> None:
        self._line = line

    def on_hint(self, hint: Hint) -> None:
        self._line.hints.append(hint)

    async def listen(self, limit_s: float) -> bool:
        self._line.listening = True
        return True


class BackendOverLine:
    def __init__(self, line: Line) -> None:
        self.leases = LeasesOverLine(line)
        self.fences = FencesOverLine(line)
        self.wakeup = WakeupOverLine(line)
        self.checkup = NoCheckup("the store is simulated")
        self.schema = NoTables()

    def events(self, table: str) -> Events:
        raise NotImplementedError("only leases are simulated")

    def items(self, kind: str) -> ItemStore:
        raise NotImplementedError("only leases are simulated")

    async def open(self, limit_s: float) -> None:
        return None

    async def close(self) -> None:
        return None
