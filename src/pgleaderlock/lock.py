"""LeaderLock: one leader among competing processes, by a PostgreSQL session advisory lock."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, suppress
from typing import Any, Self

from fencehold.model.election import LockState
from fencehold.model.errors import redact
from fencehold.ports.fence import Transaction
from fencehold.runtime.callbacks import Callbacks, Registers
from fencehold.runtime.clock import BootClock
from fencehold.runtime.election import Election, ElectionSettings
from pgleaderlock._logging import get_logger
from pgleaderlock.companion import Companion
from pgleaderlock.errors import LockError, ShutdownError
from pgleaderlock.mechanism import AdvisoryMechanism, Grant, Timing
from pgleaderlock.retry import ExponentialBackoff, GivesUpOnPooler, RetryStrategy
from pgleaderlock.session import ROUND_TRIP_LIMIT_S, Session, open_session

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

    def _key(self) -> Any:
        from fencehold.model.leases import TermKey

        return TermKey(self._companion.name, self._companion.holder_id, self.epoch, self._lease_s)


class LeaderLock(Registers):
    """At most one LeaderLock with these keys is leader at any time; `is_leader` is False before another's turns True.

    The lifecycle is one task in the caller's event loop, which alone uses the connection. A leader that is frozen, cut
    off, or blocked for much longer than three health intervals loses the lock: the server ends its session after five
    intervals without a probe, and the leader stops trusting itself a little earlier, whether or not an error arrives.
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
        self._retry = GivesUpOnPooler(retry_strategy or ExponentialBackoff())
        self._timing = Timing(health_interval_s)
        self._settings = ElectionSettings(auto_reacquire=auto_reacquire, grace_s=reconnect_grace_s)
        self._external_stop = shutdown_event
        self._clock = BootClock()
        self._log = get_logger().bind(key1=key1, key2=key2)
        self._callbacks = Callbacks(self._log)
        self._companion = Companion(dsn, fencing_name, fencing_table) if fencing_name is not None else None
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
        if self._task is not None and not self._task.done():
            return
        if self._companion is not None:
            await self._companion.init()
        self._mechanism = AdvisoryMechanism(self._open, self._timing, self._clock, self._log, self._companion)
        self._election = Election(
            self._mechanism, self._settings, self._retry, self._callbacks, self._clock, self._on_state
        )
        self._callbacks.dispatcher.start()
        self._task = asyncio.create_task(self._election.run(), name=f"pgleaderlock-{self.key1}-{self.key2}")
        self._task.add_done_callback(self._ended)
        if self._external_stop is not None:
            self._watcher = asyncio.create_task(self._heed(self._external_stop, self._election.stop))
        await asyncio.sleep(0)

    async def shutdown(self, timeout_s: float | None = None) -> None:
        """Release the lock and stop. Idempotent. Past the timeout the connection is dropped, which frees the lock."""
        if self._task is None or self._election is None or self._mechanism is None:
            return
        self._mechanism.release_limit_s = timeout_s
        self._election.stop.set()
        if not self._task.done():
            await asyncio.wait([self._task], timeout=timeout_s)
        if not self._task.done():
            late = f"shutdown took longer than {timeout_s} s: the connection was dropped"
            self._callbacks.broken(ShutdownError(late))
            self._task.cancel()
            await asyncio.wait([self._task], timeout=ROUND_TRIP_LIMIT_S)
        await self._callbacks.dispatcher.drain(DRAIN_LIMIT_S)
        self._callbacks.dispatcher.stop()
        if self._companion is not None:
            await self._companion.fences.close()

    async def step_down(self, timeout_s: float | None = None) -> None:
        """Release leadership without stopping. Past the timeout the connection is cycled, which frees the lock."""
        election, mechanism = self._election, self._mechanism
        if election is None or mechanism is None or election.state is not LockState.LEADER:
            return
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
            mechanism.led(election.grant)
            if old is LockState.RECONNECTING:
                self._log.fact("leadership_recovered")
            else:
                self._log.fact("lock_acquired", epoch=election.grant.epoch)
        elif old is LockState.LEADER and new is not LockState.RELEASING:
            self._log.fact("lock_lost" if new is not LockState.RECONNECTING else "reconnecting", why=why)

    def _ended(self, task: asyncio.Task[None]) -> None:
        """However it ended: nothing is held, and whoever waits is woken."""
        assert self._election is not None, "only a started lock ends"
        if self._watcher is not None:
            self._watcher.cancel()
        if not task.cancelled() and (error := task.exception()) is not None:
            self._callbacks.broken(LockError(f"{type(error).__name__}: {error}"))
        self._election.state = LockState.STOPPED
        self._election.changed.set()


__all__ = ["LeaderLock", "LockTerm"]
