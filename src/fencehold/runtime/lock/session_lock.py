"""The lifecycle of a lock that a server session holds, for any database: start, wait, step down, shut down."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Generic, Self, TypeVar

from fencehold.model.election.election import Emit, LockState
from fencehold.model.election.lock_errors import HopelessError, LockError, ShutdownError, as_lock_error
from fencehold.model.election.retry import ExponentialBackoff, RetryContext, RetryStrategy
from fencehold.model.errors import redact
from fencehold.ports.clock import Clock
from fencehold.ports.fact_table import LockFacts, StoreFacts
from fencehold.ports.facts import FactSink
from fencehold.ports.lock_session import Companion, LockSession
from fencehold.ports.time_limit import TimeLimit
from fencehold.runtime.core.callbacks import Callbacks, Registers
from fencehold.runtime.core.clock import BootClock
from fencehold.runtime.core.shared_limit import DRAIN_LIMIT_S, Limit
from fencehold.runtime.election.election import LEADING, Election, ElectionSettings
from fencehold.runtime.lock.mechanism import ROUND_TRIP_LIMIT_S, Grant, SessionMechanism, Timing
from fencehold.runtime.lock.term import LockTerm

S = TypeVar("S", bound=LockSession)

EXIT_LIMIT_S = 10.0


class GivesUpWhenHopeless:
    """The caller's retry strategy, but it gives up after a HopelessError, for which a retry cannot help."""

    def __init__(self, inner: RetryStrategy) -> None:
        self._inner = inner

    def next_delay_s(self, ctx: RetryContext) -> float | None:
        return None if isinstance(ctx.last_error, HopelessError) else self._inner.next_delay_s(ctx)


@dataclass(frozen=True)
class LockSettings:
    """How a lock is kept and sought. Raises ValueError for a duration that is not above zero."""

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


class SessionLock(Registers, Generic[S]):
    """Runs the lifecycle in one task on the caller's event loop; only this task uses the connection.

    A subclass defines what is locked and opens the session that locks it.
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
        self._task_name = task_name
        self._timing = settings.timing
        self._log = LockFacts(log)
        self._store_facts = StoreFacts(log)
        self._retry = GivesUpWhenHopeless(settings.retry_strategy or ExponentialBackoff())
        self._settings = ElectionSettings(auto_reacquire=settings.auto_reacquire, grace_s=settings.reconnect_grace_s)
        self._external_stop = settings.shutdown_event
        self._clock: Clock = BootClock()
        self._callbacks = Callbacks(self._store_facts)
        self._companion = companion
        self._as_error = as_error
        self._mechanism: SessionMechanism[S] | None = None
        self._election: Election[Grant] | None = None
        self._task: asyncio.Task[None] | None = None
        self._watcher: asyncio.Task[None] | None = None
        self._begun = asyncio.Event()  # set when it is first started, or stopped before that

    async def _open(self) -> S:
        raise NotImplementedError

    def _where(self) -> str:
        """The database's address, without secrets."""
        raise NotImplementedError

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
        limit = Limit(timeout_s)
        mechanism.release_limit_s = min(ROUND_TRIP_LIMIT_S, limit.of_release_s or ROUND_TRIP_LIMIT_S)
        election.stop.set()
        if not task.done():
            await asyncio.wait([task], timeout=timeout_s)
        callbacks = Limit(max(DRAIN_LIMIT_S, limit.of_callbacks_s))
        if not task.done():
            late = f"shutdown took longer than {timeout_s} s: the connection was dropped"
            self._store_facts.shutdown_cut_off(limit_s=timeout_s)
            self._callbacks.emit(Emit.ERROR, ShutdownError(late))
            election.cut_off()  # callbacks are sent before the connection is closed, which may take long
            task.cancel()
            await asyncio.wait([task], timeout=ROUND_TRIP_LIMIT_S)
        told = await self._callbacks.delivered(callbacks.of_callbacks_s)
        if not told and self._task is task:  # else a callback has started the lock again
            self._callbacks.drop()
        if self._companion is not None:
            await self._companion.fences.close()

    async def step_down(self, timeout_s: float | None = None) -> None:
        """Release leadership without stopping. Past the timeout the connection is dropped, which frees the lock.

        Returns after the `on_released` callbacks have run, or when the timeout is over (without one they have 10 s).
        Inside a callback it does not wait for callbacks. Does nothing when not leading; waits for a release that is
        in progress.
        """
        election, mechanism = self._election, self._mechanism
        if election is None or mechanism is None or election.state not in LEADING:
            return
        limit = Limit(timeout_s)
        if election.state is LockState.LEADER:
            mechanism.release_limit_s = limit.of_release_s
            election.step_down.set()
        with suppress(TimeoutError):  # a release in progress may have a longer time
            async with TimeLimit(timeout_s):
                while election.state in LEADING:
                    await election.changed.wait()
        await self._callbacks.delivered(limit.of_callbacks_s, upto=election.last_delivered)

    async def wait_for_leadership(self, timeout_s: float | None = None) -> bool:
        """Wait until this process leads and `on_acquired` has run: True. False on timeout or once stopped.

        True is returned only while this process leads. Once stopped, it returns after `on_lost`, `on_error` and
        `on_stopped` have run. It waits for callbacks until the timeout, at most 10 s; inside a callback it does not
        wait for them. Before `start()` it also waits for the start.
        """
        with suppress(TimeoutError):
            async with TimeLimit(timeout_s):
                await self._begun.wait()
                while (grant := await self._led()) is not None:
                    await self._callbacks.delivered(upto=self._last_delivered)
                    if self.is_leader and self._election is not None and self._election.grant is grant:
                        return True
                await self._callbacks.delivered()
        return self.is_leader

    async def _led(self) -> Grant | None:
        """Wait until this process leads and return its grant. None once stopped."""
        while (election := self._election) is not None:
            changed = election.changed
            if self.is_leader:
                return election.grant
            if election.is_over and (self._task is None or self._task.done()):
                return None
            await changed.wait()
        return None

    @property
    def _last_delivered(self) -> int:
        return self._election.last_delivered if self._election is not None else 0

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.shutdown(EXIT_LIMIT_S)

    # --- state ---

    @property
    def state(self) -> LockState:
        return self._election.state if self._election is not None else LockState.STOPPED

    @property
    def is_leader(self) -> bool:
        """True while the state is LEADER and the last proof of possession counts. Compares clocks, never blocks."""
        grant = self._election.grant if self._election is not None else None
        return self.state is LockState.LEADER and grant is not None and grant.is_valid

    @property
    def term(self) -> LockTerm | None:
        """The current term while it is valid; always None without a fencing epoch."""
        grant = self._election.grant if self._election is not None else None
        if grant is None or not self.is_leader or self._companion is None:
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
            mechanism.led()
        if new in (LockState.FOLLOWER, LockState.STOPPED):
            mechanism.end_term()
        if old is LockState.LEADER and new not in (LockState.LEADER, LockState.RELEASING):
            log_end = self._log.reconnecting if new is LockState.RECONNECTING else self._log.lock_lost
            log_end(why=why)

    def _ended(self, election: Election[Grant], watcher: asyncio.Task[None] | None, task: asyncio.Task[None]) -> None:
        """Called when the election's task has ended, in whatever way: send an error to `on_error`, wake the waiters."""
        if watcher is not None:
            watcher.cancel()
        if not task.cancelled() and (error := task.exception()) is not None:
            self._callbacks.emit(Emit.ERROR, LockError(redact(f"{type(error).__name__}: {error}")))
        election.ended()
