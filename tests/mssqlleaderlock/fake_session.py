"""A SQL Server that is only the lock, for lifecycles on virtual time: told what to break or to leave unanswered."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

from mssqlleaderlock import FixedInterval, LeaderLock
from mssqlleaderlock.companion import Companion
from tests.fencehold.testing.simulation.on_virtual_time import LoopClock
from tests.pgleaderlock.fake_server import FakeServer
from tests.pgleaderlock.heard import Heard

URL = "mssql://clerk:geheim@db/app"


class FakeLease:
    """The row of the fencing epoch. `refusals` are raised, one by one, instead of raising the epoch."""

    def __init__(self) -> None:
        self.epoch = 0
        self.is_live = True
        self.refusals: list[Exception] = []
        self.asked: list[str] = []

    def answer(self, companion: Companion, sql: str, params: dict[str, Any]) -> tuple[Any, ...]:
        if sql == companion._seize:
            self.asked.append("seize")
            if self.refusals:
                raise self.refusals.pop(0)
            self.epoch += 1
            self.is_live = True
            return self.epoch, f"id of {params['name']}"
        assert sql == companion._statements.named("renew")
        self.asked.append("renew")
        [key] = json.loads(params["keys"])
        return ("yes" if self.is_live and int(key["epoch"]) == self.epoch else "no",)


class FakeSession:
    """What the real one does with batches, with the fake server's word for each; within the limit, as the real one."""

    expires = True
    birth = None

    def __init__(self, server: FakeServer, row: Callable[[str, dict[str, Any]], tuple[Any, ...]]) -> None:
        self._server = server
        self._row = row
        self.closed = False

    async def row(self, sql: str, params: dict[str, Any], limit_s: float) -> tuple[Any, ...]:
        await self._server.answer("epoch", ())
        return self._row(sql, params)

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
        self.lease = FakeLease()

    async def _open(self) -> Any:
        await self.server.answer("connect", ())
        self.sessions.append(FakeSession(self.server, self._row))
        return self.sessions[-1]

    def _row(self, sql: str, params: dict[str, Any]) -> tuple[Any, ...]:
        assert isinstance(self._companion, Companion)
        return self.lease.answer(self._companion, sql, params)


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
