"""A session of one process over its line: what PostgreSQL's offers, or only what any connection does; and its epoch."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

from fencehold.model.election.leases import TermKey
from fencehold.model.election.lock_errors import ConnectionError, LockError  # noqa: A004 - spec 002's name
from fencehold.ports.fence import FencePort
from fencehold.testing.simulation.fences import LEASE_NAME, FencesOverLine
from fencehold.testing.simulation.locks.server import LockServer, ServerSession
from fencehold.testing.simulation.network import Line

T = TypeVar("T")

CONNECT_LIMIT_S = 5.0


class SessionOverLine:
    """`silent_s_max`: for how long the server bears its silence while it holds the lock. None: a plain connection."""

    def __init__(self, line: Line, server: LockServer, silent_s_max: float | None) -> None:
        self._line, self._server, self._silent_s_max = line, server, silent_s_max
        self._side: Any = asyncio.get_running_loop()
        self._ended, self._freed = asyncio.Event(), asyncio.Event()
        self._is_closed = False
        self.was_refused = False  # a probe was told that the lock is not held
        self.at_server: ServerSession
        self.end_heard_s: float | None = None  # how long its thread had run by then

    async def connect(self) -> None:
        made: list[ServerSession] = []
        server, line = self._server, self._line

        def connect() -> None:
            made.append(server.connect(lambda: self._tell(self._hear_end), lambda: self._tell(self._freed.set)))

        try:
            await line.ask(connect, CONNECT_LIMIT_S)
        except BaseException:
            if made:
                line.hang_up(lambda: server.end(made[0]))
            raise
        self.at_server = made[0]

    def _tell(self, message: Callable[[], None]) -> None:
        if self.expires:
            self._line.tell(self._side, message)

    def _hear_end(self) -> None:
        self.end_heard_s = self._side.running_s()
        self._ended.set()

    async def ask(self, work: Callable[[ServerSession], T], limit_s: float) -> T:
        if self._is_closed or self._ended.is_set():
            raise ConnectionError("the connection is closed")
        return await self._line.ask(lambda: self._server.run(self.at_server, work), limit_s)

    async def try_lock(self, limit_s: float) -> bool:
        self._freed.clear()
        return await self.ask(lambda session: self._server.try_lock(session, self._silent_s_max), limit_s)

    async def probe(self, limit_s: float) -> bool:
        held = await self.ask(lambda session: self._server.holder is session or not self.expires, limit_s)
        self.was_refused |= not held
        return held

    async def unlock(self, limit_s: float) -> bool:
        return await self.ask(self._server.unlock, limit_s)

    async def evict(self, born: Any, limit_s: float) -> bool:
        return self.expires and await self.ask(lambda session: self._server.evict(born), limit_s)

    async def rest(self, timeout_s: float) -> None:
        await self._first_of(timeout_s, self._ended)

    async def wait_for_news(self, timeout_s: float, stop: asyncio.Event) -> None:
        await self._first_of(timeout_s, self._ended, self._freed, stop)

    async def _first_of(self, timeout_s: float, *events: asyncio.Event) -> None:
        waits = [asyncio.ensure_future(event.wait()) for event in events]
        try:
            await asyncio.wait(waits, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

    async def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._line.hang_up(lambda: self._server.end(self.at_server))

    @property
    def expires(self) -> bool:
        return self._silent_s_max is not None

    @property
    def birth(self) -> Any | None:
        return self.at_server.number if self.expires else None


class CompanionOverLine:
    """The epoch's row, on the lock's own connection."""

    def __init__(self, server: LockServer, line: Line, holder_id: str) -> None:
        self.name, self.holder_id, self.lease_id = LEASE_NAME, holder_id, ""
        self.fences: FencePort = FencesOverLine(server, line)
        self._server = server

    async def seize(self, session: SessionOverLine, lease_s: float, limit_s: float) -> int:
        return await session.ask(lambda at: self._server.seize(at, self.holder_id, lease_s), limit_s)

    async def resume(self, session: SessionOverLine, epoch: int, lease_s: float, limit_s: float) -> bool:
        return await session.ask(lambda _: self._server.renew(self._key(epoch, lease_s)), limit_s)

    async def renew(self, session: SessionOverLine, epoch: int, lease_s: float, limit_s: float) -> None:
        if not await self.resume(session, epoch, lease_s, limit_s):
            raise LockError("the fencing epoch was taken over")

    async def release(self, session: SessionOverLine, epoch: int, limit_s: float) -> None:
        await session.ask(lambda _: self._server.release(self._key(epoch, 0.0)), limit_s)

    def _key(self, epoch: int, lease_s: float) -> TermKey:
        return TermKey(LEASE_NAME, self.holder_id, epoch, lease_s)
