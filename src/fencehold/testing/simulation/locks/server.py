"""The server of the locks: one lock, which a session holds, and the row of the fencing epoch beside it.

A session that holds the lock and sends nothing for too long is ended, if it was opened so; the lock is then free.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar

from fencehold.backends.memory.backend import MemoryLeases
from fencehold.model.election.leases import Ask, Lease, TermKey
from fencehold.model.election.lock_errors import ConnectionError  # noqa: A004 - spec 002's name
from fencehold.model.errors import Unavailable
from fencehold.testing.simulation.fences import LEASE_NAME, FencedStore
from fencehold.testing.simulation.locks.referee import LockReferee
from fencehold.testing.simulation.loop import SimulationLoop
from fencehold.testing.simulation.network import at_once

T = TypeVar("T")
Told = Callable[[], None]


@dataclass(eq=False)
class ServerSession:
    """A connection as the server has it. `was_taken`: the lock was, though its client did nothing wrong."""

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
        """From now on the session may be silent for so long."""
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
        """Take the lock from its session, which is ended (an operator, a restart) or lives on without it."""
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
        """Take the row whatever its expiry: it is the lock that keeps others away."""
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
