"""The watch: what it says of a store that does not answer, and to whom."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from fencehold.backends.memory.backend import MemoryBackend, Shelf
from fencehold.model.election.rules import Lease
from fencehold.model.errors import Unavailable
from fencehold.runtime.election.watch import Follow, News, Watch
from tests.fencehold.testing.simulation.on_virtual_time import LoopClock, virtual


class Scene:
    """A store that answers the first read and is away from the second on, which waits for `gate`."""

    def __init__(self) -> None:
        backend = MemoryBackend(Shelf(now_s=asyncio.get_running_loop().time))
        self.told: list[tuple[str, dict[str, Any]]] = []
        self.reads, self.gate, self.asked = 0, asyncio.Event(), asyncio.Event()
        self.watch = Watch(self, backend.wakeup, LoopClock(), self, lambda _: None)  # type: ignore[arg-type]
        self.follow = Follow("nightly", 1.0, self._hear)
        self.watch.follow(self.follow)

    async def read(self, names: Iterable[str], limit_s: float) -> dict[str, Lease | None]:
        self.reads += 1
        if self.reads == 1:
            return dict.fromkeys(names)
        self.asked.set()
        await self.gate.wait()
        raise Unavailable("Away.", code="unreachable")

    def fact(self, event: str, **fields: Any) -> None:
        self.told.append((event, fields))

    def _hear(self, news: News, lease: Lease | None) -> None:
        pass


@virtual
async def test_a_store_that_is_away_is_told_of_with_the_names_that_are_followed() -> None:
    scene = Scene()
    running = asyncio.ensure_future(scene.watch.run())
    await scene.asked.wait()
    scene.gate.set()
    await asyncio.sleep(0.1)
    running.cancel()
    assert [(event, fields["following"]) for event, fields in scene.told] == [("store_unreachable", ["nightly"])]


@virtual
async def test_a_store_that_is_away_is_not_told_of_when_nobody_follows_any_more() -> None:
    scene = Scene()
    running = asyncio.ensure_future(scene.watch.run())
    await scene.asked.wait()
    scene.watch.unfollow(scene.follow)
    scene.gate.set()
    await asyncio.sleep(0.1)
    running.cancel()
    assert scene.told == []
