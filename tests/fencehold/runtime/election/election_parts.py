"""A store in memory and its candidates, on virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from fencehold.backends.memory.backend import MemoryBackend, Shelf
from fencehold.model.election.rules import Ask, TermKey
from fencehold.model.election.settings import leader_settings
from fencehold.model.errors import Unavailable
from fencehold.ports.backend import Backend
from fencehold.ports.facts import FactSink
from fencehold.ports.leases import Answer
from fencehold.runtime.context import KeeperServices, StoreContext
from fencehold.runtime.election.leader import Candidates, Leader
from fencehold.telemetry.traces import NoTraces
from tests.fencehold.testing.simulation.on_virtual_time import LoopClock, SameLoopHost

SETTINGS = leader_settings(lease=9)  # asks every 4.5 s, renews every 3 s, a call may take 1.7 s


class Facts:
    def __init__(self) -> None:
        self.told: list[str] = []

    def fact(self, event: str, **fields: Any) -> None:
        self.told.append(event)


class Town:
    """One store in memory and its candidates, on virtual time."""

    def __init__(self) -> None:
        self.shelf = Shelf(now_s=asyncio.get_running_loop().time)
        self.facts = Facts()
        self.delay_s = 0.0
        self.down: bool | Exception = False
        self.hanging = False

    async def candidate(self, holder_id: str, **options: Any) -> Leader:
        backend = MemoryBackend(self.shelf)
        acquire = backend.leases.acquire

        async def slow(ask: Ask, limit_s: float) -> Answer:
            if self.down:
                raise self.down if isinstance(self.down, Exception) else Unavailable("down")
            await asyncio.sleep(self.delay_s)
            return await acquire(ask, limit_s)

        release = backend.leases.release

        async def answered(keys: Sequence[TermKey], limit_s: float) -> list[Answer]:
            if self.down:
                raise Unavailable("down")
            if self.hanging:
                await asyncio.Event().wait()
            return await release(keys, limit_s)

        backend.leases.acquire = slow  # type: ignore[method-assign]
        backend.leases.release = answered  # type: ignore[method-assign]
        context = await opened_context(backend, self.facts)
        settings = options.pop("settings", SETTINGS)
        options.setdefault("retry_strategy", None)
        return Leader(
            "one", holder_id, settings, context, candidates=Candidates(), **options,
        )  # fmt: skip

    @property
    def is_free(self) -> bool:
        row = self.shelf.rows.get("one")
        return row is None or row.expires_at <= self.shelf.now()


async def opened_context(backend: Backend, facts: FactSink) -> StoreContext:
    """A store's parts, with a keeper that runs in this very event loop."""
    context = StoreContext(lambda: backend, LoopClock(), facts, NoTraces(), label="test")
    keeper = KeeperServices(backend, context.clock, context.facts)
    await keeper.open(1.0)
    context.opened(keeper, SameLoopHost())
    return context


def listened(leader: Leader) -> list[str]:
    """The names of the callbacks that fire, in order."""
    heard: list[str] = []
    leader.on_acquired(lambda: heard.append("acquired"))
    leader.on_released(lambda: heard.append("released"))
    leader.on_lost(lambda: heard.append("lost"))
    leader.on_acquire_failed(lambda: heard.append("acquire_failed"))
    leader.on_state_change(lambda old, new: heard.append(f"{old.value}>{new.value}"))
    leader.on_error(lambda error: heard.append("error"))
    leader.on_stopped(lambda: heard.append("stopped"))
    return heard
