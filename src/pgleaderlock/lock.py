"""LeaderLock: one leader among competing processes, by a PostgreSQL session advisory lock."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from typing import Any, Self, TypedDict, Unpack

from fencehold.backends.postgres import hosts
from fencehold.model.errors import redact
from fencehold.runtime.lock.mechanism import ROUND_TRIP_LIMIT_S, Timing
from fencehold.runtime.lock.session_lock import LockSettings, LockTerm, SessionLock
from pgleaderlock._logging import get_logger
from pgleaderlock.companion import Companion
from pgleaderlock.retry import RetryStrategy
from pgleaderlock.session import Session, as_lock_error, conninfo, open_session

INT32 = range(-(2**31), 2**31)


class LockOptions(TypedDict, total=False):
    """The keyword arguments of LeaderLock."""

    retry_strategy: RetryStrategy | None
    health_interval_s: float
    reconnect_grace_s: float | None
    auto_reacquire: bool
    shutdown_event: asyncio.Event | None
    connect_fn: Callable[[], Awaitable[Any]] | None
    fencing_name: str | None
    fencing_table: str


class LeaderLock(SessionLock[Session]):
    """Leader election by an advisory lock: at most one session holds these two keys at any time.

    The `is_leader` of a leader that gets no answers turns False before the server gives the lock away.

    The election is one task in the caller's event loop, and only this task uses the connection. A leader that is
    frozen, cut off, or blocked for much longer than three health intervals loses the lock: the server ends its session
    after five intervals without a probe, and `is_leader` turns False a little earlier, whether or not an error arrives.

    Not guaranteed: when the server itself ends the session (an operator, a restart, a reset network), the lock is free
    a moment before the leader can know. Writes that must not overlap need `fencing_name` and `term.transaction()`.
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
        log = get_logger().bind(key1=key1, key2=key2)
        companion = Companion(conninfo(dsn), fencing_name, fencing_table, log) if fencing_name is not None else None
        settings = LockSettings(
            Timing(health_interval_s), retry_strategy, reconnect_grace_s, auto_reacquire, shutdown_event
        )
        super().__init__(f"pgleaderlock-{key1}-{key2}", settings, log, companion=companion, as_error=as_lock_error)
        self._dsn, self.key1, self.key2 = dsn, key1, key2
        self._connect_fn = connect_fn

    @classmethod
    def for_name(cls, dsn: str, name: str, **options: Unpack[LockOptions]) -> Self:
        """Return a lock whose keys are computed from a service's name: the same keys in every process and release."""
        digest = hashlib.sha256(f"pgleaderlock:{name}".encode()).digest()
        key1, key2 = (int.from_bytes(digest[i : i + 4], "big", signed=True) for i in (0, 4))
        return cls(dsn, key1, key2, **options)

    def __repr__(self) -> str:
        return f"<LeaderLock key1={self.key1} key2={self.key2} {self.state.value} {redact(self._dsn)}>"

    async def _open(self) -> Session:
        return await open_session(
            self._dsn, self._connect_fn, self.key1, self.key2,
            timeout_s=self._timing.trust_s, limit_s=ROUND_TRIP_LIMIT_S,
        )  # fmt: skip

    def _where(self) -> str:
        if self._connect_fn is not None:
            return "by connect_fn"
        try:
            return hosts.named(conninfo(self._dsn))
        except Exception:  # noqa: BLE001 - the first attempt reports what is wrong with it
            return "an address that cannot be read"


__all__ = ["LeaderLock", "LockTerm"]
