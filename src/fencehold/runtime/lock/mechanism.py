"""How an election gets, proves and releases a lock that a server session holds. It runs on the caller's event loop."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from fencehold.model.election.lock_errors import (
    ConnectionError,  # noqa: A004 - spec 002's name
    HopelessError,
    LockError,
    PoolerError,
    as_lock_error,
    as_outage,
)
from fencehold.ports.clock import Clock
from fencehold.ports.fact_table import LockFacts, OutageFacts
from fencehold.ports.lock_session import Companion, LockSession
from fencehold.ports.mechanism import Unanswered
from fencehold.ports.time_limit import TimeLimit
from fencehold.runtime.core.repeated_failures import Outage
from fencehold.runtime.core.trust import Trust

S = TypeVar("S", bound=LockSession)

ROUND_TRIP_LIMIT_S = 5.0
OVER = "over"
TOO_LATE = "came too late: the server may have ended the session's time"

NO_ANSWER = (
    "the release got no answer within {:g} s: the connection was dropped, and the lock is free once the server sees it"
)

#: The session's own limits are this much longer, so that the outer limit ends an unlock first: only the code there
#: knows that dropping the connection unlocks too.
INNER_EXTRA_S = 1.0


@dataclass(frozen=True)
class Timing:
    """How often a leader proves that it still has the lock, and for how long a proof counts."""

    health_interval_s: float

    @property
    def trust_s(self) -> float:
        """For how many seconds a proof counts: enough even if the loop blocks for three intervals before a probe."""
        return self.health_interval_s * 5

    @property
    def margin_s(self) -> float:
        return min(1.0, self.health_interval_s / 4)

    @property
    def probe_limit_s(self) -> float:
        return min(ROUND_TRIP_LIMIT_S, max(0.05, self.health_interval_s))

    @property
    def seize_limit_s(self) -> float:
        """The limit for taking over the epoch: enough to wait for an open fenced transaction of an earlier leader.

        The server ends such a transaction after half of the time that a lease lasts.
        """
        return max(ROUND_TRIP_LIMIT_S, self.trust_s)


class Grant:
    """A lock that the server granted to our session. It counts as ours for a limited time after the last proof.

    A proof is a probe that the session still holds the lock; it counts from when the probe was sent. Without `expires`
    the lock is ours until `end`. `may_resume`: whether the grant's term may go on after a reconnect within the grace
    period.
    """

    def __init__(self, clock: Clock, sent_s: float, timing: Timing, expires: bool) -> None:
        self._clock = clock
        self._proof_s = timing.trust_s - timing.margin_s
        self._trusted_s = self._proof_s if expires else math.inf
        self._trust = Trust(clock, sent_s, self._trusted_s)
        self.may_resume = True
        self.epoch: int | None = None

    @property
    def is_valid(self) -> bool:
        """True while the lock is ours. It compares clocks and does no I/O.

        Always False in a forked child: its parent has the session.
        """
        return self._trust.is_valid

    @property
    def remaining_s(self) -> float:
        """Seconds for which the last proof still counts; 0 once the lock is not ours any more."""
        return max(0.0, self._trust.renewed_s + self._proof_s - self._clock.now_s()) if self.is_valid else 0.0

    def begin(self, sent_s: float) -> None:
        """Trust the lock again by a probe sent at `sent_s`, also after `end`: no other session had it meanwhile."""
        self._trust = Trust(self._clock, sent_s, self._trusted_s)

    def prove(self, sent_s: float) -> None:
        self._trust.extend(sent_s, self._trusted_s)

    def end(self) -> None:
        self._trust.end(OVER)


class SessionMechanism(Generic[S]):
    """Acquires, proves and releases the lock on one connection, which it owns.

    It drops the connection after any error, timeout or cancel: the server then frees the lock.
    """

    def __init__(
        self,
        open_session: Callable[[], Awaitable[S]],
        timing: Timing,
        clock: Clock,
        facts: LockFacts,
        *,
        companion: Companion[S] | None = None,
        as_error: Callable[[Exception], Exception] = as_lock_error,
        where: str = "",
    ) -> None:
        """Prepare the attempts to lock; nothing is opened yet.

        `where`: the database's address without secrets, for the log of an outage.
        """
        self._open = open_session
        self._where = where
        self._outage = Outage(OutageFacts(facts.sink), clock)
        self._timing = timing
        self._clock = clock
        self._facts = facts
        self._companion = companion
        self._as_error = as_error
        self._session: S | None = None
        self._grant: Grant | None = None
        self._left_behind: Any | None = None
        self._interrupted: Grant | None = None
        self._turn = asyncio.Lock()
        self._at_rest = asyncio.Event()
        self._at_rest.set()
        self._has_worked = False
        self.attempts = 0
        self.release_limit_s: float | None = None

    async def attempt(self) -> Grant | None:
        async with self._turn:  # a cancelled attempt may still be closing its session
            self.attempts += 1
            try:
                answer = await self._attempt()
                self._has_worked = True
                self._outage.answered()
                return answer
            except Exception as error:
                await self.close()
                fault = self._as_error(error)
                if self._has_worked and isinstance(fault, HopelessError) and not isinstance(fault, PoolerError):
                    fault = ConnectionError(str(fault))  # the password or right has worked before, so it may work again
                if isinstance(fault, HopelessError):  # there is no other attempt
                    self._facts.gave_up(error=fault)
                else:
                    self._outage.failed(as_outage(fault, self._where))
                raise fault from error
            except BaseException:
                await self.close()  # a cancelled attempt may have locked: only ending the session unlocks for sure
                raise

    async def _attempt(self) -> Grant | None:
        if self._session is None:
            self._session = await self._open()
        session = self._session
        sent_s = await self._locked(session)
        if sent_s is None:
            return None
        self._grant = Grant(self._clock, sent_s, self._timing, expires=session.expires)
        if self._companion is not None:
            self._grant = await self._fenced(session, self._companion, self._grant)
        if not self._grant.is_valid:  # this process stood still: no term begins on a proof that is over
            raise LockError(f"the lock was granted, and the answer {TOO_LATE}")
        return self._grant

    async def _fenced(self, session: S, companion: Companion[S], new: Grant) -> Grant:
        """Resume the interrupted term if its epoch is still the last one; else begin a new term with the next epoch.

        Returns the grant of that term.
        """
        old, lease_s, limit_s = self._interrupted, self._timing.trust_s, self._timing.seize_limit_s
        epoch = old.epoch if old is not None and old.may_resume else None
        if old is not None and epoch is not None and await companion.resume(session, epoch, lease_s, limit_s):
            old.begin(await self._probe(session))
            return old
        new.epoch = await companion.seize(session, lease_s, limit_s)
        new.begin(await self._probe(session))  # taking the epoch may have waited for long
        return new

    async def _locked(self, session: S) -> float | None:
        """Try to lock.

        Returns the time at which the granted request was sent, or None if another session holds the lock.
        """
        sent_s = self._clock.now_s()
        if await session.try_lock(ROUND_TRIP_LIMIT_S):
            return sent_s
        # The holder may be our own old session, which we dropped but whose end the server has not noticed yet.
        born, self._left_behind = self._left_behind, None
        if born is None or not await session.evict(born, ROUND_TRIP_LIMIT_S):
            return None
        sent_s = self._clock.now_s()
        return sent_s if await session.try_lock(ROUND_TRIP_LIMIT_S) else None

    async def hold(self, grant: Grant) -> str:
        """Probe until it cannot be proven any more that we hold the lock.

        Then drop the connection and raise the error.
        """
        self._at_rest.clear()
        try:
            while True:
                assert self._session is not None, "a leader has its session"
                await self._session.rest(self._timing.health_interval_s)
                await self._undisturbed(self._prove(grant))
        except asyncio.CancelledError:
            raise
        except Exception as error:
            grant.end()
            self._interrupted = grant
            await self.close()
            self._facts.health_check_failed(error=self._as_error(error))
            raise self._as_error(error) from error
        finally:
            self._at_rest.set()

    async def _undisturbed(self, proving: Awaitable[None]) -> None:
        """Await a probe. If the caller is cancelled, the probe ends first: cancelling it would break the connection."""
        probe = asyncio.ensure_future(proving)
        try:
            await asyncio.shield(probe)
        except asyncio.CancelledError:
            await asyncio.wait([probe])
            if not probe.cancelled():
                probe.exception()
            raise

    async def _prove(self, grant: Grant) -> None:
        session = self._session
        if session is None:
            raise LockError("the connection was closed")
        sent_s = await self._probe(session)
        if not grant.is_valid:
            raise LockError(f"the answer to the probe {TOO_LATE}")
        if self._companion is not None and grant.epoch is not None:
            lease_s = self._timing.trust_s
            await self._companion.renew(session, grant.epoch, lease_s, self._timing.probe_limit_s)
        grant.prove(sent_s)

    async def _probe(self, session: S) -> float:
        """Return the time at which the probe was sent. Raises LockError if the session does not hold the lock."""
        sent_s = self._clock.now_s()
        if not await session.probe(self._timing.probe_limit_s):
            raise LockError("the session is alive but no longer holds the lock")
        return sent_s

    async def release(self, grant: Grant, stop: asyncio.Event) -> bool:
        """End the grant locally, then unlock. Returns True. Raises the error if the unlock fails.

        After its time limit it drops the connection, so that the server unlocks when it notices, and raises Unanswered.
        """
        grant.end()
        session = self._session
        limit_s = self.release_limit_s if self.release_limit_s is not None else ROUND_TRIP_LIMIT_S
        if session is None:
            raise Unanswered(ConnectionError("the connection broke before the lock could be released"))
        try:
            async with TimeLimit(limit_s):
                await self._at_rest.wait()
                if self._companion is not None and grant.epoch is not None:
                    await self._companion.release(session, grant.epoch, limit_s + INNER_EXTRA_S)
                if not await session.unlock(limit_s + INNER_EXTRA_S):
                    raise LockError("the session did not hold the lock that it was to release")
        except TimeoutError:
            self._facts.release_cut_off(limit_s=limit_s)
            await self.close()
            raise Unanswered(ConnectionError(NO_ANSWER.format(limit_s))) from None
        except BaseException as error:
            await self.close()
            raise self._as_error(error) if isinstance(error, Exception) else error from error
        self._grant = None
        return True

    async def pause(self, delay_s: float, stop: asyncio.Event) -> None:
        if self._session is not None:
            await self._session.wait_for_news(delay_s, stop)
        else:
            await self._clock.wait(stop, delay_s)

    def is_hopeless(self, error: Exception | None) -> bool:
        return isinstance(error, HopelessError)

    def is_new_term(self, grant: Grant) -> bool:
        """Return whether this grant began a new term; False if it resumed the interrupted one.

        Always False without a fencing epoch, because then the server keeps no record of who led.
        """
        return grant.epoch is not None and grant is not self._interrupted

    def end_term(self) -> None:
        """End the current grant before the callbacks of its term's end are called.

        The next grant will be a new term.
        """
        self._interrupted = None
        if self._grant is not None:
            self._grant.end()

    async def close(self) -> None:
        session, self._session = self._session, None
        grant, self._grant = self._grant, None
        if grant is not None:
            grant.end()
        if session is not None:
            if grant is not None:
                self._left_behind = session.birth
            await session.close()
