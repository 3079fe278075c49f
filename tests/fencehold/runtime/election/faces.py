"""Two faces of one election, a lock of pgleaderlock and `store.leader`, for tests that hold for both; virtual time."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from fencehold.model.election.rules import Lease
from fencehold.model.election.settings import leader_settings
from fencehold.model.errors import ConfigurationError
from fencehold.ports.fact_table import StoreFacts
from fencehold.runtime.election.leader import Leader
from fencehold.testing.simulation import virtual_loop
from pgleaderlock import LeaderLock
from tests.fencehold.runtime.election.election_parts import Facts, Town
from tests.pgleaderlock.fake_server import Scene


class Locked:
    """A lock on a fake server."""

    def __init__(self) -> None:
        self._scene = Scene()
        self.lock = self._scene.lock
        self._facts = Facts()
        self.lock._callbacks._facts = StoreFacts(self._facts)

    def lose_to_another(self) -> None:
        self._scene.server.broken = {"probe"}
        self._scene.server.holder = "another"

    def may_lead_again(self) -> None:
        self._scene.server.broken = set()
        self._scene.server.holder = None

    def release_hangs(self) -> None:
        self._scene.server.hanging = {"unlock"}

    async def next_grant(self) -> None:
        """Until the instant at which the lock is answered for."""
        await self._scene.server.was_asked("lock", times=self._scene.server.count("lock") + 1)
        await asyncio.sleep(0.001)

    def facts(self, event: str) -> list[str]:
        return [told for told in self._facts.told if told == event]


class WrittenRows(dict[str, Lease]):
    """Tells when one of them is written."""

    def __init__(self, rows: dict[str, Lease]) -> None:
        super().__init__(rows)
        self.written = asyncio.Event()

    def __setitem__(self, name: str, row: Lease) -> None:
        super().__setitem__(name, row)
        self.written.set()


class Leased:
    """A leader on a store in memory."""

    def __init__(self, town: Town, leader: Leader) -> None:
        self._town = town
        self.lock = leader

    def lose_to_another(self) -> None:
        self._town.down = True
        assert self.lock.term is not None
        self.lock.term.lost("taken over")

    def may_lead_again(self) -> None:
        self._town.down = False

    def release_hangs(self) -> None:
        self._town.hanging = True

    def is_a_mistake(self) -> None:
        self._town.down = ConfigurationError("no such table", code="not_initialised")

    async def next_grant(self) -> None:
        """Until the turn in which the row is written."""
        rows = self._town.shelf.rows = WrittenRows(self._town.shelf.rows)
        await rows.written.wait()

    def facts(self, event: str) -> list[str]:
        return [told for told in self._town.facts.told if told == event]


Face = Locked | Leased
Make = Callable[[], Coroutine[Any, Any, Any]]
Test = Callable[[Any], Coroutine[Any, Any, None]]


async def locked() -> Locked:
    return Locked()


async def leased() -> Leased:
    town = Town()
    return Leased(town, await town.candidate("a", settings=leader_settings(lease=3)))


def on_both(test: Test) -> Any:
    """The test twice, each time on a loop of its own; the leader is shut down afterwards."""

    @pytest.mark.parametrize("make", [locked, leased])
    @functools.wraps(test)
    def run(make: Make) -> None:
        async def made() -> None:
            face = await make()
            await test(face)
            await face.lock.shutdown()

        virtual_loop.run(made)

    vars(run).pop("__wrapped__")  # or pytest would look for the parameters of the test itself
    return run


def now_s() -> float:
    return asyncio.get_running_loop().time()


def noting(lock: LeaderLock | Leader) -> list[str]:
    told: list[str] = []
    lock.on_acquired(lambda: told.append("acquired"))
    lock.on_released(lambda: told.append("released"))
    lock.on_lost(lambda: told.append("lost"))
    lock.on_error(lambda error: told.append(str(error)))
    return told


def noting_end(lock: LeaderLock | Leader) -> list[str]:
    """How a term and the lifecycle end, errors by their word only."""
    told: list[str] = []
    lock.on_released(lambda: told.append("released"))
    lock.on_lost(lambda: told.append("lost"))
    lock.on_error(lambda error: told.append("error"))
    lock.on_state_change(lambda old, new: told.append(f"{old.value}>{new.value}"))
    lock.on_stopped(lambda: told.append("stopped"))
    return told


async def end_all_tasks() -> None:
    """As `asyncio.run` does at the end of its program: cancel every task, once, and wait for them."""
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def until(is_so: Callable[[], Any], limit_s: float = 60.0) -> None:
    """On virtual time looking a hundred times a second costs nothing."""
    async with asyncio.timeout(limit_s):
        while not is_so():  # noqa: ASYNC110 - a state that the test only looks at has no event
            await asyncio.sleep(0.01)
