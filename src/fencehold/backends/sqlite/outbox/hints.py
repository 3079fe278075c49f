"""Hints that events were added: at once if this process added them, within 50 ms if another process did."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
import threading
from collections.abc import Callable

from fencehold.backends.sql.statements import Statements
from fencehold.backends.sqlite.session import Session, single
from fencehold.model.errors import FenceholdError
from fencehold.ports.wakeup import ADDED, Hint

LOOK_EVERY_S = 0.05
LOOK_LIMIT_S = 1.0

Relay = Callable[[], None]

_lock = threading.Lock()
_relays: dict[tuple[str, str], list[Relay]] = {}


class Neighbours:
    """Everybody in this process who waits for events of the same table in the same file, on all threads.

    Each joins with a function (a relay) that passes the hint to its own event loop; `notify` calls the relays of all.
    """

    def __init__(self, path: str, table: str) -> None:
        self._key = (os.path.realpath(path), table)

    def join(self, relay: Relay) -> None:
        with _lock:
            _relays.setdefault(self._key, []).append(relay)

    def leave(self, relay: Relay) -> None:
        with _lock:
            left = [other for other in _relays.pop(self._key, []) if other is not relay]
            if left:
                _relays[self._key] = left

    def notify(self) -> None:
        with _lock:
            relays = list(_relays.get(self._key, ()))
        for relay in relays:
            relay()


class SqliteEventHints:
    def __init__(self, session: Session, statements: Statements, neighbours: Neighbours) -> None:
        self._session = session
        self._statements = statements
        self._neighbours = neighbours
        self._hints: list[Hint] = []
        self._watch: asyncio.Task[None] | None = None
        self._relay: Relay | None = None
        self._looked_at: sqlite3.Connection | None = None
        self._version = -1
        self._newest = 0

    def on_hint(self, hint: Hint) -> None:
        self._hints.append(hint)

    async def listen(self, limit_s: float) -> bool:
        """Start to listen, and return True: events that any process adds are noticed.

        SQLite does not notify, so the file is read every 50 ms to see whether another process has added an event.
        """
        if self._relay is None:
            self._relay = self._to_this_loop()
            self._neighbours.join(self._relay)
            await self._has_grown()  # a first look, before anything can change
            self._watch = asyncio.create_task(self._keep_looking())
        return True

    def close(self) -> None:
        if self._relay is not None:
            self._neighbours.leave(self._relay)
        if self._watch is not None:
            self._watch.cancel()

    def _to_this_loop(self) -> Relay:
        loop = asyncio.get_running_loop()

        def relay() -> None:
            with contextlib.suppress(RuntimeError):  # that loop has ended
                loop.call_soon_threadsafe(self._hint)

        return relay

    def _hint(self) -> None:
        for hint in self._hints:
            hint(ADDED, "")

    async def _keep_looking(self) -> None:
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            if await self._has_grown():
                self._hint()

    async def _has_grown(self) -> bool:
        try:
            return await self._session.read(self._look, LOOK_LIMIT_S)
        except FenceholdError:
            return False  # the callers' own polls raise the error

    def _look(self, connection: sqlite3.Connection) -> bool:
        """Return whether an event was added since the last call.

        Every claim changes the file too, but only an added event is worth a hint.
        """
        if connection is not self._looked_at:  # perhaps to another file, with other numbers
            self._looked_at, self._version, self._newest = connection, -1, 0
        version = int(single(connection, self._statements["changes"]))
        if version == self._version:
            return False
        newest = single(connection, self._statements["newest"]) or 0
        has_grown = newest > self._newest
        self._version, self._newest = version, newest
        return has_grown
