"""The operator's verbs for an outbox on PostgreSQL."""

from __future__ import annotations

from collections.abc import Awaitable

from fencehold.backends.postgres.callers import PostgresCallersOutbox
from fencehold.backends.postgres.outbox import rows as event_rows
from fencehold.backends.postgres.outbox.session import EventSession
from fencehold.backends.sql import wrong_store
from fencehold.backends.sql.statements import Statements
from fencehold.ports.events import EventRow, Filter, Stats


class PostgresEventAdmin:
    def __init__(self, session: EventSession, statements: Statements) -> None:
        self._session = session
        self._statements = statements
        self._callers = PostgresCallersOutbox(statements)

    async def stats(self, limit_s: float, whole: bool = True) -> Stats:
        rows = await self._session.run("stats", {"whole": whole}, limit_s)
        return event_rows.stats(rows[0])

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
        return [row[0] for row in await self._session.run("redrive", params, limit_s)]

    async def purge(self, which: Filter, limit: int, limit_s: float, dry_run: bool = False) -> int:
        params = event_rows.filter_params(which)
        if dry_run:
            return min(limit, int((await self._session.run("purgeable", params, limit_s))[0][0]))
        return int((await self._session.run("purge", {**params, "limit": limit}, limit_s))[0][0])

    async def identity(self, limit_s: float) -> str:
        rows = await self._session.run("identity", {}, limit_s)
        return wrong_store.identity_of(rows, self._statements.table)

    def first_time(self, tracking_id: str, consumer_id: str, target: object, outbox_id: str) -> Awaitable[bool]:
        params = {"tracking_id": tracking_id, "consumer": consumer_id, "outbox_id": outbox_id}
        return self._callers.first_time(target, params)
