"""Connections that all `Outbox` objects of one outbox share: an object made for each request opens none of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, Protocol
from weakref import WeakSet

from fencehold.ports.backend import events_of
from fencehold.ports.events import Events
from fencehold.runtime.context import StoreContext

Place = tuple[asyncio.AbstractEventLoop, str]


class Handle(Protocol):
    """An `Outbox` object, as `store.outbox(...)` returned it; several may stand for one outbox."""

    name: str


class SharedEvents:
    """Keeps one connection per outbox and event loop, however many handles there are, and the id of each outbox.

    A handle is one object that `store.outbox(...)` returned.
    """

    def __init__(self, store: StoreContext) -> None:
        self._store = store
        self._events: dict[Place, Events] = {}
        self._users: dict[Place, WeakSet[Handle]] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self.outbox_ids: dict[str, str] = {}

    def here(self, outbox: Handle) -> Events:
        """Return the outbox for the running event loop, with a connection that opens when needed.

        The connection stays open when the handle is gone, and the next handle of the same outbox uses it.
        """
        loop = asyncio.get_running_loop()
        place = (loop, outbox.name)
        if place not in self._events:
            self._leave_closed_loops(loop)
            self._events[place] = events_of(self._store.backend, outbox.name)
            self._users[place] = WeakSet()
        self._users[place].add(outbox)
        return self._events[place]

    async def leave(self, outbox: Handle) -> None:
        """Close the connections that this handle has used and no other handle uses."""
        for place in [place for place, users in list(self._users.items()) if outbox in users]:
            self._users[place].discard(outbox)
            if not self._users[place]:
                await self._forget(place).close()

    async def close(self) -> None:
        self.outbox_ids.clear()
        while self._events:
            await self._forget(next(iter(self._events))).close()

    def _forget(self, place: Place) -> Events:
        self._users.pop(place, None)
        return self._events.pop(place)

    def _leave_closed_loops(self, loop: asyncio.AbstractEventLoop) -> None:
        """Close the connections of closed event loops. A program may run a new event loop for each request."""
        for place in [place for place in list(self._events) if place[0].is_closed()]:
            task = loop.create_task(self._ended(self._forget(place).close()))
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    async def _ended(self, closing: Coroutine[Any, Any, None]) -> None:
        with suppress(RuntimeError):  # a part of it belonged to the closed loop, and ended with it
            await closing
