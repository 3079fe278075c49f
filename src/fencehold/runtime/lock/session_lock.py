"""The lifecycle of a lock that a server session holds, for any database: start, wait, step down, shut down."""

from __future__ import annotations

import asyncio
import math
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar, overload

from fencehold.model.election.election import Emit, LockState
from fencehold.model.election.lock_errors import LockError, ShutdownError, as_lock_error
from fencehold.model.election.retry import ExponentialBackoff, RetryStrategy
from fencehold.model.election.rules import TermKey
from fencehold.model.errors import redact
from fencehold.ports.clock import Clock
from fencehold.ports.connections import AsyncConnection, Connection, SyncConnection
from fencehold.ports.fact_table import LeaseFacts, LockFacts, StoreFacts
from fencehold.ports.facts import FactSink
from fencehold.ports.fence import Transaction
from fencehold.ports.lock_session import Companion, LockSession
from fencehold.runtime.core.block_kinds import AsyncTransactionBlock
from fencehold.runtime.core.clock import BootClock
from fencehold.runtime.election.election import LEADING, Candidate, Election, ElectionSettings, Limit
from fencehold.runtime.election.pending_fence import NOT_AWAITED_HINT, PendingFence, called_on, loop_here
from fencehold.runtime.lock.mechanism import ROUND_TRIP_LIMIT_S, Grant, SessionMechanism, Timing

S = TypeVar("S", bound=LockSession)
EXIT_LIMIT_S = 10.0


async def _awaited(pending: Awaitable[None]) -> None:
    await pending


class LockTerm:
    """One term of a lock with a fencing epoch, which is the fencing token. It makes fenced transactions."""

    def __init__(self, grant: Grant, companion: Companion[Any], lease_s: float, log: LockFacts) -> None:
        assert grant.epoch is not None, "a term has an epoch"
        self._log = LeaseFacts(log.sink, lease_epoch=grant.epoch)
        self._loop = loop_here()
        self.epoch = grant.epoch
        self._grant = grant
        self._companion = companion
        self._lease_s = lease_s

    @property
    def is_valid(self) -> bool:
        return self._grant.is_valid

    def transaction(self) -> AbstractAsyncContextManager[Transaction]:
        """Return a fenced transaction on a connection of its own: it commits only while this epoch holds."""
        block = self._companion.fences.transaction(self._key(), lambda: self._grant.remaining_s)
        return AsyncTransactionBlock(block)

    @overload
    def fence(self, connection_or_session: SyncConnection) -> Awaitable[None]: ...
    @overload
    def fence(self, connection_or_session: AsyncConnection) -> Coroutine[Any, Any, None]: ...
    def fence(self, connection_or_session: Connection) -> Awaitable[None]:
        """Fence a transaction that the caller owns: it commits only while this epoch holds.

        Await the result for async connections and sessions. Without the await, the transaction of an async connection
        is not fenced: that is logged as an error (`fence_not_awaited`) and ends the term.
        """
        pending = self._companion.fences.fence(connection_or_session, self._key())
        if not asyncio.iscoroutine(pending):
            return pending
        return PendingFence(_awaited(pending), pending, self._forgotten)

    def _forgotten(self) -> None:
        self._grant.may_resume = False  # this term has ended, even within the grace period
        self._grant.end()
        called_on(self._loop, lambda: self._log.fence_not_awaited(hint=NOT_AWAITED_HINT))

    def _key(self) -> TermKey:
        companion = self._companion
        return TermKey(companion.name, companion.holder_id, self.epoch, self._lease_s, companion.lease_id)


@dataclass(frozen=True)
class LockSettings:
    """The settings of a lock: how it is sought, proven and resumed. Raises ValueError for a duration not above zero."""

    timing: Timing
    retry_strategy: RetryStrategy | None
    reconnect_grace_s: float | None
    auto_reacquire: bool
    shutdown_event: asyncio.Event | None

    def __post_init__(self) -> None:
        durations = {"health_interval_s": self.timing.health_interval_s, "reconnect_grace_s": self.reconnect_grace_s}
        for name, value in durations.items():
            if value is not None and not (0 < value < math.inf):
                raise ValueError(f"{name} is {value!r}; it must be above zero")


class SessionLock(Candidate[Grant], Generic[S]):
    """A candidate for a lock that a server session holds. It runs in one task on the caller's event loop.

    Only this task uses the connection. A subclass defines what is locked and opens the session that locks it.
    """

    def __init__(
        self,
        task_name: str,
        settings: LockSettings,
        log: FactSink,
        *,
        companion: Companion[S] | None,
        as_error: Callable[[Exception], Exception] = as_lock_error,
    ) -> None:
        self._store_facts = StoreFacts(log)
        super().__init__(self._store_facts)
        self._task_name = task_name
        self._timing = settings.timing
        self._log = LockFacts(log)
        self._retry = settings.retry_strategy or ExponentialBackoff()
        self._settings = ElectionSettings(auto_reacquire=settings.auto_reacquire, grace_s=settings.reconnect_grace_s)
        self._external_stop = settings.shutdown_event
        self._clock: Clock = BootClock()
        self._companion = companion
        self._as_error = as_error
        self._mechanism: SessionMechanism[S] | None = None
        self._watcher: asyncio.Task[None] | None = None

    @abstractmethod
    async def _open(self) -> S:
        """Open a new session, which locks nothing yet, and return it."""

    @abstractmethod
    def _where(self) -> str:
        """Return the database's address, without secrets."""

    # --- lifecycle ---

    async def start(self) -> None:
        """Start the lifecycle task: it goes from STOPPED to FOLLOWER and tries to acquire at once. Idempotent."""
        before = self._election
        if (before is None or await before.make_way()) and self._election is before:
            self._spawn()
        await asyncio.sleep(0)

    def _spawn(self) -> None:
        self._mechanism = SessionMechanism(
            self._open, self._timing, self._clock, self._log,
            companion=self._companion, as_error=self._as_error, where=self._where(),
        )  # fmt: skip
        self._election = Election(
            self._mechanism, self._settings, self._retry, self._callbacks, self._clock, self._on_state
        )
        self._task = asyncio.create_task(self._election.run(), name=self._task_name)
        self._begun.set()
        if self._external_stop is not None:
            self._watcher = asyncio.create_task(self._heed(self._external_stop, self._election.stop))
        self._task.add_done_callback(partial(self._ended, self._election, self._watcher))

    async def shutdown(self, timeout_s: float | None = None) -> None:
        """Release the lock and stop. Idempotent. Past the timeout the connection is dropped, which frees the lock.

        Returns after the callbacks have run, or when their time is over (what is left of the timeout, at least 2 s;
        10 s without a timeout): then the remaining callbacks are cancelled. If this call is cancelled, the lifecycle
        stops all the same; a second call waits for its end.
        """
        self._begun.set()
        task, election, mechanism = self._task, self._election, self._mechanism
        if task is None or election is None or mechanism is None:
            return
        release_limit_s = Limit(timeout_s).of_release_s
        mechanism.release_limit_s = min(ROUND_TRIP_LIMIT_S, release_limit_s or ROUND_TRIP_LIMIT_S)
        await self._stopped(election, task, timeout_s)
        if self._companion is not None:
            await self._companion.fences.close()

    async def _cut_off(self, election: Election[Grant], task: asyncio.Task[None], timeout_s: float | None) -> None:
        late = f"shutdown took longer than {timeout_s} s: the connection was dropped"
        self._store_facts.shutdown_cut_off(limit_s=timeout_s)
        self._callbacks.emit(Emit.ERROR, ShutdownError(late))
        election.cut_off()  # callbacks are sent before the connection is closed, which may take long
        task.cancel()
        await asyncio.wait([task], timeout=ROUND_TRIP_LIMIT_S)

    async def step_down(self, timeout_s: float | None = None) -> None:
        """Release leadership, and go on as a candidate.

        Past the timeout the connection is dropped, which frees the lock. Returns after the `on_released` callbacks have
        run, or when the timeout is over (without one they have 10 s). Inside a callback it does not wait for callbacks.
        Does nothing when not leading; waits for a release that is in progress.
        """
        election, mechanism = self._election, self._mechanism
        if election is None or mechanism is None or election.state not in LEADING:
            return
        limit = Limit(timeout_s)
        if election.state is LockState.LEADER:
            mechanism.release_limit_s = limit.of_release_s
            election.step_down.set()
        await self._stepped_down(election, timeout_s)  # a release in progress may have a longer time
        await self._callbacks.delivered(limit.of_callbacks_s, upto=election.last_delivered)

    async def wait_for_leadership(self, timeout_s: float | None = None) -> bool:
        """Wait until this process leads and `on_acquired` has run. Returns True then, False on timeout or once stopped.

        True is returned only while this process leads. If the lock has stopped, this returns after `on_lost`,
        `on_error` and `on_stopped` have run. It waits for callbacks until the timeout, at most 10 s; inside a callback
        it does not wait for callbacks. Before `start()` it also waits for the start.
        """
        await self._leads_or_over(timeout_s)
        return self.is_leader

    def _is_over(self, election: Election[Grant]) -> bool:
        """True once the election has ended and the connection is closed."""
        return election.is_over and (self._task is None or self._task.done())

    async def __aexit__(self, *exc: object) -> None:
        await self.shutdown(EXIT_LIMIT_S)

    # --- state ---

    @property
    def is_leader(self) -> bool:
        """True while the state is LEADER and the last proof that the lock is ours counts.

        Compares clocks, never blocks.
        """
        return self._leadership is not None

    @property
    def _leadership(self) -> Grant | None:
        grant = self._election.grant if self._election is not None else None
        return grant if self.state is LockState.LEADER and grant is not None and grant.is_valid else None

    @property
    def term(self) -> LockTerm | None:
        """The current term; None while this process does not lead, and always None without a fencing epoch."""
        grant = self._leadership
        if grant is None or self._companion is None:
            return None
        return LockTerm(grant, self._companion, self._timing.trust_s, self._log)

    # --- parts ---

    async def _heed(self, outside: asyncio.Event, stop: asyncio.Event) -> None:
        await outside.wait()
        stop.set()

    def _on_state(self, old: LockState, new: LockState, why: str) -> None:
        self._log.state_change(old=old.value, new=new.value)
        election, mechanism = self._election, self._mechanism
        assert election is not None, "states change only while an election runs"
        assert mechanism is not None, "an election has its mechanism"
        if new is LockState.LEADER and election.grant is not None:
            if old is LockState.RECONNECTING:
                self._log.leadership_recovered(epoch=election.grant.epoch)
            else:
                self._log.lock_acquired(attempt=mechanism.attempts, epoch=election.grant.epoch)
            mechanism.attempts = 0
        if new in (LockState.FOLLOWER, LockState.STOPPED):
            mechanism.end_term()
        if old is LockState.LEADER and new not in (LockState.LEADER, LockState.RELEASING):
            log_end = self._log.reconnecting if new is LockState.RECONNECTING else self._log.lock_lost
            log_end(why=why)

    def _ended(self, election: Election[Grant], watcher: asyncio.Task[None] | None, task: asyncio.Task[None]) -> None:
        """Send an error to `on_error` and wake the waiters, because the election's task has ended, in whatever way."""
        if watcher is not None:
            watcher.cancel()
        if not task.cancelled() and (error := task.exception()) is not None:
            self._callbacks.emit(Emit.ERROR, LockError(redact(f"{type(error).__name__}: {error}")))
        election.ended()
