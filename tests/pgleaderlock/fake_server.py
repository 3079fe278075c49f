"""A PostgreSQL that is only the lock, for lifecycles on virtual time: told what to break or to leave unanswered."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

from pgleaderlock import FixedInterval, LeaderLock
from tests.fencehold.testing.simulation.on_virtual_time import LoopClock
from tests.pgleaderlock.heard import Heard

KINDS = {"pg_try_advisory_lock": "lock", "pg_advisory_unlock": "unlock", "SELECT 1": "probe"}


class Refused(Exception):
    """What the fake server answers when told to break."""


class FakeServer:
    """`broken` statements raise, `hanging` ones never arrive, `mute` ones are executed and never answered.

    `holder` is a connection, or any other session.
    """

    def __init__(self) -> None:
        self.holder: object | None = None
        self.broken: set[str] = set()
        self.hanging: set[str] = set()
        self.mute: set[str] = set()
        self.asked: list[tuple[str, tuple[Any, ...]]] = []
        self.connections: list[FakeConnection] = []
        self._counts: Counter[str] = Counter()
        self._asked = asyncio.Event()

    async def connect(self) -> FakeConnection:
        await self.answer("connect", ())
        self.connections.append(FakeConnection(self))
        return self.connections[-1]

    async def answer(self, kind: str, params: tuple[Any, ...]) -> None:
        self.asked.append((kind, params))
        self._counts[kind] += 1
        self._asked.set()
        self._asked = asyncio.Event()
        await asyncio.sleep(0.001)
        if kind in self.hanging:
            await asyncio.Event().wait()
        if kind in self.broken:
            raise Refused(f"{kind} broke")

    async def was_asked(self, kind: str, times: int) -> None:
        """Until this many such requests came; the last of them has no answer yet."""
        while self.count(kind) < times:
            await self._asked.wait()

    def count(self, kind: str) -> int:
        return self._counts[kind]

    @property
    def open_connections(self) -> int:
        return sum(not connection.closed for connection in self.connections)


class FakeConnection:
    def __init__(self, server: FakeServer) -> None:
        self._server = server
        self._answer: object = None
        self.closed = False

    async def execute(self, statement: str, params: tuple[Any, ...] = ()) -> FakeConnection:
        kind = next(kind for part, kind in KINDS.items() if part in statement)
        await self._server.answer(kind, tuple(params))
        if self.closed:
            raise Refused("the connection is closed")
        if kind == "lock" and self._server.holder is None:
            self._server.holder = self
        self._answer = self._server.holder is self
        if kind == "unlock" and self._answer:
            self._server.holder = None
        if kind in self._server.mute:
            await asyncio.Event().wait()
        return self

    async def fetchone(self) -> tuple[object]:
        return (self._answer,)

    async def close(self) -> None:
        self.closed = True
        if self._server.holder is self:
            self._server.holder = None
        if "close" in self._server.hanging:
            await asyncio.Event().wait()


class Scene(Heard[LeaderLock]):
    """One lock on a fake server."""

    def __init__(self, **options: Any) -> None:
        self.server = FakeServer()
        options.setdefault("retry_strategy", FixedInterval(5))
        options.setdefault("health_interval_s", 1)
        options.setdefault("connect_fn", self.server.connect)
        super().__init__(LeaderLock("", 1, 100, **options))
        self.lock._clock = LoopClock()
