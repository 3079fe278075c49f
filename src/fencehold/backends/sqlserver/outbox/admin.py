"""The verbs of an operator for an outbox on SQL Server: count, find, redrive and purge events."""

from __future__ import annotations

from fencehold.backends.sqlserver.outbox import rows as event_rows
from fencehold.backends.sqlserver.params import microseconds
from fencehold.backends.sqlserver.session import Session
from fencehold.ports.events import EventRow, Filter, Stats


class SqlServerEventAdmin:
    def __init__(self, session: Session) -> None:
        self._session = session

    async def stats(self, limit_s: float, whole: bool = True) -> Stats:
        rows = await self._session.run("stats", {"whole": int(whole)}, limit_s)
        return event_rows.stats(*rows[0])

    async def find(self, which: Filter, limit: int, limit_s: float) -> list[EventRow]:
        params = {**event_rows.filter_params(which), "limit": limit}
        return [event_rows.event_row(row) for row in await self._session.run("find", params, limit_s)]

    async def redrive(
        self, which: Filter, root_cause: str, limit: int, spread_s: float, limit_s: float, dry_run: bool = False
    ) -> list[str]:
        params = {
            **event_rows.filter_params(which), "root_cause": root_cause, "limit": limit,
            "spread_us": microseconds(spread_s), "dry_run": int(dry_run),
        }  # fmt: skip
        return [tracking_id for (tracking_id,) in await self._session.run("redrive", params, limit_s)]

    async def purge(self, which: Filter, limit: int, limit_s: float, dry_run: bool = False) -> int:
        params = event_rows.filter_params(which)
        name = "purgeable" if dry_run else "purge"
        [(count,)] = await self._session.run(name, {**params, "limit": limit}, limit_s)
        return min(limit, int(count))
