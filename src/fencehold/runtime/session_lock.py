"""The life of a lock that a server session holds: started, awaited, stepped down from, shut down; on any database."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Generic, Self, TypeVar

from fencehold.model.election import Emit, LockState
from fencehold.model.errors import redact
from fencehold.model.lock_errors import HopelessError, LockError, ShutdownError, as_lock_error
from fencehold.model.retry import ExponentialBackoff, RetryContext, RetryStrategy
from fencehold.ports.clock import Clock
from fencehold.ports.facts import FactSink
from fencehold.ports.lock_session import Companion, LockSession
from fencehold.runtime.callbacks import Callbacks, Registers
from fencehold.runtime.clock import BootClock
from fencehold.runtime.election import Election, ElectionSettings
from fencehold.runtime.lock_mechanism import ROUND_TRIP_LIMIT_S, Grant, SessionMechanism, Timing
from fencehold.runtime.lock_term import LockTerm

S = TypeVar("S", bound=LockSession)

DRAIN_LIMIT_S = 2.0
EXIT_LIMIT_S = 10.0


class GivesUpWhenHopeless:
    """The caller's strategy, except that it gives up on what no retry can mend."""

    def __init__(self, inner: RetryStrategy) -> None:
        self._inner = inner

    def next_delay_s(self, ctx: RetryContext) -> float | None:
        return None if isinstance(ctx.last_error, HopelessError) else self._inner.next_delay_s(ctx)


class SessionLock(Registers, Generic[S]):
    """The lifecycle is one task in the caller's event loop, which alone uses the connection.

    A subclass says what is locked, and opens the session that does it.
    """

    def __init__(
        self,
        task_name: str,
        timing: Timing,
        log: FactSink,
        *,
        retry_strategy: RetryStrategy | None,
        reconnect_grace_s: float | None,
        auto_reacquire: bool,
        shutdown_event: asyncio.Event | None,
        companion: Companion[S] | None,
        as_error: Callable[[Exception], Exception] = as_lock_error,
    ) -> None:
        durations = {"health_interval_s": timing.health_interval_s, "reconnect_grace_s": reconnect_grace_s}
        for name, value in durations.items():
            if value is not None and not (0 < value < math.inf):
                raise ValueError(f"{name} is {value!r}; it must be above zero")
        self._task_name = task_name
        self._timing = timing
        self._log = log
        self._retry = GivesUpWhenHopeless(retry_strategy or ExponentialBackoff())
        self._settings = ElectionSettings(auto_reacquire=auto_reacquire, grace_s=reconnect_grace_s)
        self._external_stop = shutdown_event
        self._clock: Clock = BootClock()
        self._callbacks = Callbacks(log)
        self._companion = companion
        self._as_error = as_error
        self._mechanism: SessionMechanism[S] | None = None
        self._election: Election[Grant] | None = None
        self._task: asyncio.Task[None] | None = None
        self._watcher: asyncio.Task[None] | None = None

    async def _open(self) -> S:
        raise NotImplementedError

    # --- lifecycle ---

    async def start(self) -> None:
        """Spawn the lifecycle task: STOPPED to FOLLOWER, and an attempt at once. Idempotent."""
        if self._task is None or self._task.done():
            self._spawn()
        await asyncio.sleep(0)

    def _spawn(self) -> None:
        self._mechanism = SessionMechanism(
            self._open, self._timing, self._clock, self._log, companion=self._companion, as_error=self._as_error
        )
        self._election = Election(
            self._mechanism, self._settings, self._retry, self._callbacks, self._clock, self._on_state
        )
        self._callbacks.dispatcher.start()
        self._task = asyncio.create_task(self._election.run(), name=self._task_name)
        if self._external_stop is not None:
            self._watcher = asyncio.create_task(self._heed(self._external_stop, self._election.stop))
        self._task.add_done_callback(partial(self._ended, self._election, self._watcher))

    async def shutdown(self, timeout_s: float | None = None) -> None:
        """Release the lock and stop. Idempotent. Past the timeout the connection is dropped, which frees the lock.

        If this call is cancelled the lifecycle stops all the same; a second call waits for its end.
        """
        task, election, mechanism = self._task, self._election, self._mechanism
        if task is None or election is None or mechanism is None:
            return
        # A little below: an unlock that hangs is cut off, and the end is told in order, before the time is over.
        mechanism.release_limit_s = min(ROUND_TRIP_LIMIT_S, timeout_s * 0.8 if timeout_s is not None else math.inf)
        election.stop.set()
        if not task.done():
            await asyncio.wait([task], timeout=timeout_s)
        if not task.done():
            late = f"shutdown took longer than {timeout_s} s: the connection was dropped"
            self._log.fact("shutdown_cut_off", limit_s=timeout_s)
            self._callbacks.emit(Emit.ERROR, ShutdownError(late))
            task.cancel()
            await asyncio.wait([task], timeout=ROUND_TRIP_LIMIT_S)
        await self._told_everybody()
        if self._companion is not None:
            await self._companion.fences.close()

    async def _told_everybody(self) -> None:
        dispatcher = self._callbacks.dispatcher
        if dispatcher.is_delivering_here():
            return  # a callback asked for the shutdown: it cannot wait for its own end
        await dispatcher.drain(DRAIN_LIMIT_S)
        if self._task is None or self._task.done():  # else somebody started the lock again meanwhile
            dispatcher.stop()

    async def step_down(self, timeout_s: float | None = None) -> None:
        """Release leadership without stopping. Past the timeout the connection is cycled, which frees the lock.

        Without leadership there is nothing to do; a release that is under way is waited for.
        """
        election, mechanism = self._election, self._mechanism
        if election is None or mechanism is None:
            return
        if election.state is LockState.LEADER:
            mechanism.release_limit_s = timeout_s
            election.step_down.set()
        while election.state in (LockState.LEADER, LockState.RELEASING):
            await election.changed.wait()

    async def wait_for_leadership(self, timeout_s: float | None = None) -> bool:
        """True as soon as we lead; False on timeout or once stopped."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while self._election is not None:
                    changed = self._election.changed
                    if self.is_leader:
                        return True
                    if self._task is not None and self._task.done():
                        return False
                    await changed.wait()
        return self.is_leader

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
        """LEADER, and still within the time for which possession was proven; compares clocks, never blocks."""
        grant = self._election.grant if self._election is not None else None
        return self.state is LockState.LEADER and grant is not None and grant.is_valid

    @property
    def term(self) -> LockTerm | None:
        """The current term, while it is valid; only with a fencing epoch."""
        grant = self._election.grant if self._election is not None else None
        if grant is None or not self.is_leader or self._companion is None:
            return None
        return LockTerm(grant, self._companion, self._timing.trust_s)

    # --- parts ---

    async def _heed(self, outside: asyncio.Event, stop: asyncio.Event) -> None:
        await outside.wait()
        stop.set()

    def _on_state(self, old: LockState, new: LockState, why: str) -> None:
        self._log.fact("state_change", from_=old.value, to=new.value)
        election, mechanism = self._election, self._mechanism
        assert election is not None, "states change only while an election runs"
        assert mechanism is not None, "an election has its mechanism"
        if new is LockState.LEADER and election.grant is not None:
            if old is LockState.RECONNECTING:
                self._log.fact("leadership_recovered")
            else:
                self._log.fact("lock_acquired", attempt=mechanism.attempts, epoch=election.grant.epoch)
            mechanism.led(election.grant)
        elif old is LockState.LEADER and new is not LockState.RELEASING:
            self._log.fact("lock_lost" if new is not LockState.RECONNECTING else "reconnecting", why=why)

    def _ended(self, election: Election[Grant], watcher: asyncio.Task[None] | None, task: asyncio.Task[None]) -> None:
        """However it ended: nothing is held, whoever waits is woken, and an end out of turn is told like any other."""
        if watcher is not None:
            watcher.cancel()
        old = election.state
        if not task.cancelled() and (error := task.exception()) is not None:
            self._callbacks.emit(Emit.ERROR, LockError(redact(f"{type(error).__name__}: {error}")))
        if old is not LockState.STOPPED:
            election.state = LockState.STOPPED
            self._log.fact("state_change", from_=old.value, to=LockState.STOPPED.value)
            self._callbacks.state_changed(old, LockState.STOPPED)
            if old in (LockState.LEADER, LockState.RECONNECTING):
                self._callbacks.emit(Emit.LOST, None)
            self._callbacks.emit(Emit.STOPPED, None)
        election.changed.set()
