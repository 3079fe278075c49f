"""The simulated server of the locks: one lock, which a session holds, the row of the fencing epoch, and the sessions.

The server ends a session that holds the lock and sends nothing for its `silent_s_max` seconds; the lock is then free.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from fencehold.backends.memory.backend import MemoryLeases
from fencehold.model.election.lock_errors import (
    ConnectionError,  # noqa: A004 - spec 002's name
    LockError,
)
from fencehold.model.election.rules import Ask, Lease, TermKey
from fencehold.model.errors import Unavailable
from fencehold.ports.fence import FencePort
from fencehold.testing.simulation.fences import LEASE_NAME, FencedStore, FencesOverLine
from fencehold.testing.simulation.locks.referee import LockReferee
from fencehold.testing.simulation.loop import SimulationLoop
from fencehold.testing.simulation.network import Line, at_once

T = TypeVar("T")
Told = Callable[[], None]

CONNECT_LIMIT_S = 5.0


@dataclass(eq=False)
class ServerSession:
    """A session as the server sees it.

    `was_taken`: the server took the lock from this session, though its client did nothing wrong. `ended` and `freed`
    are called to tell the client that the session is over, or that the lock may be free.
    """

    number: int
    ended: Told  # tells the client that the session is over
    freed: Told  # tells the client that the lock may be free
    is_alive: bool = True
    was_taken: bool = False
    silent_s_max: float | None = None
    timer: asyncio.TimerHandle | None = None


class LockServer(FencedStore):
    def __init__(self, loop: SimulationLoop, referee: LockReferee) -> None:
        super().__init__(loop, referee)
        self.holder: ServerSession | None = None
        self._sessions: list[ServerSession] = []
        self._leases = MemoryLeases(self.shelf)
        self._referee = referee

    # --- sessions ---

    def connect(self, ended: Told, freed: Told) -> ServerSession:
        session = ServerSession(len(self._sessions) + 1, ended, freed)
        self._sessions.append(session)
        return session

    def run(self, session: ServerSession, work: Callable[[ServerSession], T]) -> T:
        if not session.is_alive:
            raise ConnectionError("the server has ended this session")
        result = work(session)
        self._expect(session)
        return result

    def _expect(self, session: ServerSession) -> None:
        """Start to measure anew how long the session is silent.

        The session is ended after `silent_s_max` seconds, never if None.
        """
        if session.timer is not None:
            session.timer.cancel()
        if session.silent_s_max is not None:
            session.timer = self._loop.call_later(session.silent_s_max, self.end, session)

    def end(self, session: ServerSession) -> None:
        if session.is_alive:
            session.is_alive, session.silent_s_max = False, None
            self._expect(session)
            self._free(session)
            session.ended()

    def take_away(self, session: ServerSession, *, ends: bool) -> None:
        """Take the lock from `session`, if it has it. `ends`: end the session too, as an operator or a restart does."""
        session.was_taken |= self.holder is session
        if ends:
            self.end(session)
        else:
            self._free(session)

    def restart(self) -> None:
        super().restart()
        for session in [one for one in self._sessions if one.is_alive]:
            self.take_away(session, ends=True)

    def _free(self, session: ServerSession) -> None:
        if self.holder is session:
            self._referee.trace.note("server", f"session {session.number} has no lock any more")
            self.holder = None

    # --- the lock ---

    def try_lock(self, session: ServerSession, silent_s_max: float | None) -> bool:
        if self.holder is None:
            self.holder, session.silent_s_max, session.was_taken = session, silent_s_max, False
            self._referee.trace.note("server", f"session {session.number} has the lock")
        return self.holder is session

    def unlock(self, session: ServerSession) -> bool:
        if self.holder is not session:
            return False
        self._free(session)
        session.silent_s_max = None
        for other in [one for one in self._sessions if one.is_alive]:
            other.freed()
        return True

    def evict(self, number: int) -> bool:
        if self.holder is None or self.holder.number != number:
            return False
        self.end(self.holder)
        return True

    # --- the epoch ---

    def seize(self, session: ServerSession, holder_id: str, lease_s: float) -> int:
        """Give the row of the epoch to `holder_id`, even if its lease has not expired, and return the new epoch.

        The lock keeps others away, not the row. Raises Unavailable if an open fenced transaction has the row locked.
        """
        if self.shelf.fenced.get(LEASE_NAME):
            raise Unavailable("An open fenced transaction has the row locked.")
        if self.row is not None:
            self.shelf.rows[LEASE_NAME] = replace(self.row, expires_at=self.shelf.now())
        answer = at_once(self._leases.acquire(Ask(LEASE_NAME, holder_id, lease_s, secrets.token_hex(8)), 0.0))
        assert isinstance(answer, Lease), "it has just lapsed"
        self._referee.seized(holder_id, answer.epoch, by_holder=self.holder is session)
        return answer.epoch

    def renew(self, key: TermKey) -> bool:
        return isinstance(at_once(self._leases.renew([key], 0.0))[0], Lease)

    def release(self, key: TermKey) -> None:
        at_once(self._leases.release([key], 0.0))


class SessionOverLine:
    """A session as its client sees it: every request goes over the process's network line.

    `silent_s_max`: for how many seconds it may be silent while it holds the lock, before the server ends it; None: the
    server never does that.
    """

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
    """The row of the fencing epoch as the client sees it, reached over the connection of the lock's own session."""

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
