"""A SQL Server that is only the lock, for lifecycles on virtual time: told what to break or to leave unanswered."""

from __future__ import annotations

import asyncio
from typing import Any

from mssqlleaderlock import FixedInterval, LeaderLock
from tests.pgleaderlock.fake_server import FakeServer
from tests.pgleaderlock.heard import Heard
from tests.unit.on_virtual_time import LoopClock

URL = "mssql://clerk:geheim@db/app"


class FakeSession:
    """What the real one does with batches, with the fake server's word for each; within the limit, as the real one."""

    expires = True
    birth = None

    def __init__(self, server: FakeServer) -> None:
        self._server = server
        self.closed = False

    async def try_lock(self, limit_s: float) -> bool:
        return await self._asked("lock", limit_s)

    async def probe(self, limit_s: float) -> bool:
        return await self._asked("probe", limit_s)

    async def unlock(self, limit_s: float) -> bool:
        held = await self._asked("unlock", limit_s)
        if held:
            self._server.holder = None
        return held

    async def _asked(self, kind: str, limit_s: float) -> bool:
        async with asyncio.timeout(limit_s):
            await self._server.answer(kind, ())
            if kind == "lock" and self._server.holder is None:
                self._server.holder = self
            if kind in self._server.mute:
                await asyncio.Event().wait()
            return self._server.holder is self

    async def evict(self, born: Any, limit_s: float) -> bool:
        return False

    async def rest(self, timeout_s: float) -> None:
        await asyncio.sleep(timeout_s)

    async def wait_for_news(self, timeout_s: float, stop: asyncio.Event) -> None:
        await LoopClock().wait(stop, timeout_s)

    async def close(self) -> None:
        self.closed = True
        if self._server.holder is self:
            self._server.holder = None


class FakeLock(LeaderLock):
    """The real lock; only its session is not."""

    def __init__(self, server: FakeServer, **options: Any) -> None:
        super().__init__(URL, "billing", **options)
        self.server = server
        self.sessions: list[FakeSession] = []

    async def _open(self) -> Any:
        await self.server.answer("connect", ())
        self.sessions.append(FakeSession(self.server))
        return self.sessions[-1]


class SkippingClock(LoopClock):
    """Virtual time, and what a frozen process would find added to it."""

    def __init__(self) -> None:
        self.skipped_s = 0.0

    def now_s(self) -> float:
        return super().now_s() + self.skipped_s


class Scene(Heard[FakeLock]):
    """One lock on a fake server."""

    def __init__(self, **options: Any) -> None:
        self.server = FakeServer()
        self.clock = SkippingClock()
        options.setdefault("retry_strategy", FixedInterval(5))
        options.setdefault("health_interval_s", 1)
        super().__init__(FakeLock(self.server, **options))
        self.lock._clock = self.clock

    @property
    def open_sessions(self) -> int:
        return sum(not session.closed for session in self.lock.sessions)
