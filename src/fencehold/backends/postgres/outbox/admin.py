"""The verbs on an outbox on PostgreSQL that an operator calls: count, find, redrive and purge events."""

from __future__ import annotations

from fencehold.backends.postgres.outbox import rows as event_rows
from fencehold.backends.postgres.outbox.session import EventSession
from fencehold.ports.events import EventRow, Filter, Stats


class PostgresEventAdmin:
    def __init__(self, session: EventSession) -> None:
        self._session = session

    async def stats(self, limit_s: float, whole: bool = True) -> Stats:
        rows = await self._session.run("stats", {"whole": whole}, limit_s)
        return Stats(*rows[0])

    async def find(self, which: Filter, limit: int, limit_s: float) -> list[EventRow]:
        params = {**event_rows.filter_params(which), "limit": limit}
        return [event_rows.event_row(row) for row in await self._session.run("find", params, limit_s)]

    async def redrive(
        self, which: Filter, root_cause: str, limit: int, spread_s: float, limit_s: float, dry_run: bool = False
    ) -> list[str]:
        params = {
            **event_rows.filter_params(which), "root_cause": root_cause, "limit": limit, "spread": spread_s,
            "dry_run": dry_run,
        }  # fmt: skip
        return [tracking_id for (tracking_id,) in await self._session.run("redrive", params, limit_s)]

    async def purge(self, which: Filter, limit: int, limit_s: float, dry_run: bool = False) -> int:
        params = event_rows.filter_params(which)
        if dry_run:
            [(count,)] = await self._session.run("purgeable", params, limit_s)
            return min(limit, int(count))
        [(count,)] = await self._session.run("purge", {**params, "limit": limit}, limit_s)
        return int(count)
