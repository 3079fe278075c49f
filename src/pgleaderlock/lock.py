"""LeaderLock: one leader among competing processes, by a PostgreSQL session advisory lock."""

from __future__ import annotations

import asyncio
import hashlib
import math
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, suppress
from functools import partial
from typing import Any, Self

from fencehold.model.election import Emit, LockState
from fencehold.model.errors import redact
from fencehold.model.leases import TermKey
from fencehold.ports.fence import Transaction
from fencehold.runtime.callbacks import Callbacks, Registers
from fencehold.runtime.clock import BootClock
from fencehold.runtime.election import Election, ElectionSettings
from pgleaderlock._logging import get_logger
from pgleaderlock.companion import Companion
from pgleaderlock.errors import LockError, ShutdownError
from pgleaderlock.mechanism import AdvisoryMechanism, Grant, Timing
from pgleaderlock.retry import ExponentialBackoff, GivesUpWhenHopeless, RetryStrategy
from pgleaderlock.session import ROUND_TRIP_LIMIT_S, Session, conninfo, open_session

INT32 = range(-(2**31), 2**31)
DRAIN_LIMIT_S = 2.0
EXIT_LIMIT_S = 10.0


class LockTerm:
    """The current term when the lock has a fencing epoch: the token, and fenced transactions."""

    def __init__(self, grant: Grant, companion: Companion, lease_s: float) -> None:
        assert grant.epoch is not None, "a term has an epoch"
        self.epoch = grant.epoch
        self._grant = grant
        self._companion = companion
        self._lease_s = lease_s

    @property
    def is_valid(self) -> bool:
        return self._grant.is_valid

    def transaction(self) -> AbstractAsyncContextManager[Transaction]:
        """A fenced transaction on a connection of its own: it commits only while this epoch holds."""
        return self._companion.fences.transaction(self._key(), lambda: self._grant.remaining_s)

    def fence(self, connection_or_session: object) -> Awaitable[None]:
        """The same guard in a transaction the caller owns."""
        return self._companion.fences.fence(connection_or_session, self._key())

    def _key(self) -> TermKey:
        return TermKey(self._companion.name, self._companion.holder_id, self.epoch, self._lease_s)


class LeaderLock(Registers):
    """At most one session holds these keys at any time, and a silent leader's `is_leader` turns False before that ends.

    The lifecycle is one task in the caller's event loop, which alone uses the connection. A leader that is frozen, cut
    off, or blocked for much longer than three health intervals loses the lock: the server ends its session after five
    intervals without a probe, and the leader stops trusting itself a little earlier, whether or not an error arrives.

    Not guaranteed: when the server itself ends the session (an operator, a restart, a reset network), the lock is free
    a moment before the leader can know; writes that must not overlap need `fencing_name` and `term.transaction()`.
    """

    def __init__(
        self,
        dsn: str,
        key1: int,
        key2: int,
        *,
        retry_strategy: RetryStrategy | None = None,
        health_interval_s: float = 5.0,
        reconnect_grace_s: float | None = None,
        auto_reacquire: bool = True,
        shutdown_event: asyncio.Event | None = None,
        connect_fn: Callable[[], Awaitable[Any]] | None = None,
        fencing_name: str | None = None,
        fencing_table: str = "fencehold_leases",
    ) -> None:
        for name, key in (("key1", key1), ("key2", key2)):
            if type(key) is not int or key not in INT32:
                raise ValueError(f"{name} is {key!r}; an advisory lock key is a 32-bit signed integer (use for_name)")
        for name, value in (("health_interval_s", health_interval_s), ("reconnect_grace_s", reconnect_grace_s)):
            if value is not None and not (0 < value < float("inf")):
                raise ValueError(f"{name} is {value!r}; it must be above zero")
        self._dsn, self.key1, self.key2 = dsn, key1, key2
        self._connect_fn = connect_fn
        self._retry = GivesUpWhenHopeless(retry_strategy or ExponentialBackoff())
        self._timing = Timing(health_interval_s)
        self._settings = ElectionSettings(auto_reacquire=auto_reacquire, grace_s=reconnect_grace_s)
        self._external_stop = shutdown_event
        self._clock = BootClock()
        self._log = get_logger().bind(key1=key1, key2=key2)
        self._callbacks = Callbacks(self._log)
        self._companion = Companion(conninfo(dsn), fencing_name, fencing_table) if fencing_name is not None else None
        self._mechanism: AdvisoryMechanism | None = None
        self._election: Election[Grant] | None = None
        self._task: asyncio.Task[None] | None = None
        self._watcher: asyncio.Task[None] | None = None

    @classmethod
    def for_name(cls, dsn: str, name: str, **options: Any) -> Self:
        """Keys derived from a service's name, the same in every process and release."""
        digest = hashlib.sha256(f"pgleaderlock:{name}".encode()).digest()
        keys = (int.from_bytes(digest[i : i + 4], "big", signed=True) for i in (0, 4))
        return cls(dsn, *keys, **options)

    def __repr__(self) -> str:
        return f"<LeaderLock key1={self.key1} key2={self.key2} {self.state.value} {redact(self._dsn)}>"

    # --- lifecycle ---

    async def start(self) -> None:
        """Spawn the lifecycle task: STOPPED to FOLLOWER, and an attempt at once. Idempotent."""
        if self._task is None or self._task.done():
            self._spawn()
        await asyncio.sleep(0)

    def _spawn(self) -> None:
        self._mechanism = AdvisoryMechanism(self._open, self._timing, self._clock, self._log, self._companion)
        self._election = Election(
            self._mechanism, self._settings, self._retry, self._callbacks, self._clock, self._on_state
        )
        self._callbacks.dispatcher.start()
        self._task = asyncio.create_task(self._election.run(), name=f"pgleaderlock-{self.key1}-{self.key2}")
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
        """The current term, while it is valid; only with a `fencing_name`."""
        grant = self._election.grant if self._election is not None else None
        if grant is None or not self.is_leader or self._companion is None:
            return None
        return LockTerm(grant, self._companion, self._timing.server_timeout_s)

    # --- parts ---

    async def _open(self) -> Session:
        return await open_session(
            self._dsn, self._connect_fn, self.key1, self.key2,
            timeout_s=self._timing.server_timeout_s, limit_s=ROUND_TRIP_LIMIT_S,
        )  # fmt: skip

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


__all__ = ["LeaderLock", "LockTerm"]
