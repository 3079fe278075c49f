"""LeaderLock: one leader among competing processes, by an application lock of SQL Server (sp_getapplock)."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass

from fencehold.backends.sqlserver.address import Address
from fencehold.connect import scheme
from fencehold.model import names
from fencehold.model.election.retry import RetryStrategy
from fencehold.model.errors import ConfigurationError, redact
from fencehold.runtime.lock.mechanism import ROUND_TRIP_LIMIT_S, Timing
from fencehold.runtime.lock.session_lock import LockSettings, LockTerm, SessionLock
from fencehold.telemetry.lock_logs import StructuredLogger
from mssqlleaderlock.companion import Companion
from mssqlleaderlock.session import SqlServerSession, open_session

HEALTH_INTERVAL_S_MAX = 10.0
#: Writes structured lines: `lock_acquired attempt=1 name=billing`.
LOG = StructuredLogger(logging.getLogger("mssqlleaderlock"))


@dataclass(frozen=True)
class ServerTiming(Timing):
    """The time limits of a leader that follow from SQL Server's own.

    SQL Server checks a silent connection after 30 s and may then free its lock; the `is_leader` of a leader that gets
    no answers must be False before that.
    """

    trust_s_max: float = 25.0

    @property
    def trust_s(self) -> float:
        return min(super().trust_s, self.trust_s_max)


class LeaderLock(SessionLock[SqlServerSession]):
    """Leader election by an application lock: at most one session holds the lock at any time.

    `is_leader` turns False if the leader cannot prove that it holds the lock. The election is one task in the caller's
    event loop; the connection has a thread of its own.

    Not guaranteed: a frozen leader (SIGSTOP, a suspended machine) keeps the lock as long as its connection lasts,
    because SQL Server never ends an idle session; nobody leads meanwhile. And when the server itself ends the session,
    the lock is free a moment before the leader can know. Writes that must not overlap need `fencing_name` and
    `term.transaction()`. `store.leader()` has neither weakness.
    """

    def __init__(
        self,
        dsn: str,
        name: str,
        *,
        retry_strategy: RetryStrategy | None = None,
        health_interval_s: float = 5.0,
        reconnect_grace_s: float | None = None,
        auto_reacquire: bool = True,
        shutdown_event: asyncio.Event | None = None,
        fencing_name: str | None = None,
        fencing_table: str = "fencehold_leases",
    ) -> None:
        self.name = names.lock_name(name)
        self._dsn = dsn
        self._address = address_of(dsn)
        companion = Companion(self._address, fencing_name, fencing_table) if fencing_name is not None else None
        settings = LockSettings(
            ServerTiming(health_interval_s), retry_strategy, reconnect_grace_s, auto_reacquire, shutdown_event
        )
        super().__init__(f"mssqlleaderlock-{name}", settings, LOG.bind(name=name), companion=companion)
        if health_interval_s > HEALTH_INTERVAL_S_MAX:
            raise ValueError(f"health_interval_s is {health_interval_s!r}; it must be at most {HEALTH_INTERVAL_S_MAX}")

    def __repr__(self) -> str:
        return f"<LeaderLock name={self.name!r} {self.state.value} {redact(self._dsn)}>"

    async def _open(self) -> SqlServerSession:
        return await open_session(self._address, self.name, ROUND_TRIP_LIMIT_S)

    def _where(self) -> str:
        return f"{self._address.host}:{self._address.port}/{self._address.database}"


def address_of(dsn: str) -> Address:
    if "://" not in (dsn or "") or scheme(dsn) != "mssql":
        raise ConfigurationError("This is no SQL Server URL.", hint="Use mssql://user@host:1433/db.", code="bad_url")
    return Address.of(dsn)


__all__ = ["LeaderLock", "LockTerm"]
