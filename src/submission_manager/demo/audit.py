"""An audit inside the database, for demos and tests: triggers log every grant, start and record, and refuse none.

The triggers slow every write, so no instance installs them: the demo and the tests install them, on their own tables.
"""

from __future__ import annotations

from dataclasses import dataclass

import fencehold
from fencehold import Unavailable
from fencehold.own_tables import Row, Statement, own_tables
from submission_manager.stores.opening import LEASE_TABLE, open_store

PACKAGE, TABLE = "submission_manager.demo", "submission_audit"
LIMIT_S = 10.0
LOCK_LIMIT_S = 0.5


@dataclass(frozen=True, slots=True)
class Seen:
    """One row of the audit's log: a grant, or an executor's write with the lease as it was then.

    Ids grow in logging order.
    """

    id: int
    kind: str
    intent_id: str | None
    attempt_number: int | None
    epoch: int
    holder_id: str
    lease_epoch: int | None
    lease_holder: str | None
    error: str | None


@dataclass(frozen=True, slots=True)
class IntentLeft:
    intent_id: str
    status: str
    attempt_count: int
    max_attempts: int | None
    marker_epoch: int | None


@dataclass(frozen=True, slots=True)
class AttemptLeft:
    intent_id: str
    attempt_number: int


@dataclass(frozen=True, slots=True)
class Evidence:
    seen: list[Seen]
    intents: list[IntentLeft]
    attempts: list[AttemptLeft]


@dataclass(frozen=True, slots=True)
class Glance:
    """Counts of the service's present state; `started` and `recorded` count only the newest epoch."""

    holder_id: str | None
    epoch: int | None
    intents: int
    pending: int
    marked: int
    started: int
    recorded: int


class Audit:
    """Reads the audit's log and the service's tables. Each row becomes a value with fields named like its columns.

    After an error the next call connects again.
    """

    def __init__(self, url: str) -> None:
        self._tables = own_tables(url, PACKAGE, TABLE, connections=1)

    async def install(self) -> None:
        """Install the triggers. The service's own tables must exist already."""
        await self._tables.init()

    async def is_locked(self) -> bool:
        """Return whether SQLite's write lock is held for longer than a write takes. Always False on other databases."""
        if self._tables.dialect != "sqlite":
            return False
        try:
            await self._tables.run(Statement("touch"), LOCK_LIMIT_S)
        except Unavailable:
            return True
        return False

    async def glance(self) -> Glance:
        return Glance(**(await self._rows("glance"))[0])

    async def evidence(self) -> Evidence:
        return Evidence(
            [Seen(**row) for row in await self._rows("log")],
            [IntentLeft(**row) for row in await self._rows("intents")],
            [AttemptLeft(**row) for row in await self._rows("attempts")],
        )

    async def close(self) -> None:
        await self._tables.close()

    async def _rows(self, name: str) -> list[Row]:
        return await self._tables.run(Statement(name), LIMIT_S)


async def prepare(url: str) -> Audit:
    """Create the service's tables in an unused database, and install and return the audit.

    Call it before the first instance starts, to log the first grant too.
    """
    async with fencehold.connect(url, table=LEASE_TABLE, facts=fencehold.FanOut()) as leases:
        await leases.init()
    store = open_store(url)
    try:
        await store.init()
    finally:
        await store.close()
    audit = Audit(url)
    await audit.install()
    return audit
