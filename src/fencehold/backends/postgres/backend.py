"""The PostgreSQL backend as a whole: the class that makes its parts."""

from __future__ import annotations

import time

from fencehold.backends.postgres import wire
from fencehold.backends.postgres.checkup import PostgresCheckup
from fencehold.backends.postgres.commits import Commits, Replicated
from fencehold.backends.postgres.fences import PostgresFences
from fencehold.backends.postgres.items.items import PostgresItems
from fencehold.backends.postgres.leases import PostgresLeases
from fencehold.backends.postgres.outbox.events import PostgresEvents
from fencehold.backends.postgres.schema import PostgresSchema
from fencehold.backends.postgres.session import Session
from fencehold.backends.postgres.session_limits import Unread
from fencehold.backends.postgres.unread import UnreadTimeline
from fencehold.backends.sql.statements import Statements, items_table, pyformat
from fencehold.model.errors import Unavailable

READ_ONLY_LIMIT_S = 2.0
NO_STANDBY_PATIENCE_S = 30.0  # Patroni's own ttl, unless it was changed


class PostgresBackend:
    """One store on PostgreSQL: makes and holds its parts (leases, fences, tables, outboxes, items, checks).

    `unread` is called with the reason if the server does not report its timeline (the number that a failover changes),
    without which an epoch may be granted twice after a failover.
    """

    name = "PostgreSQL"
    #: One for all backends of a store.
    unread = UnreadTimeline

    def __init__(self, url: str, table: str, unread: Unread | None = None, commits: Commits | None = None) -> None:
        info = self._info = wire.conninfo(url)
        self._commits = commits or Commits()
        self._no_standby_since_s: float | None = None
        statements = Statements(__package__, table, pyformat)
        self._items_table = items_table(table)
        self._session = Session(info, statements, self._commits)
        self._session.on_unread = unread
        self.leases = PostgresLeases(self._session)
        self.schema = PostgresSchema(info, statements)
        self.fences = PostgresFences(info, statements, self._commits)
        self.wakeup = self._session
        self.checkup = PostgresCheckup(info, statements)

    def events(self, table: str) -> PostgresEvents:
        return PostgresEvents(self._info, __package__, table, self._commits)

    def items(self, kind: str) -> PostgresItems:
        return PostgresItems(self._info, __package__, self._items_table, kind, self._commits)

    @staticmethod
    def check(url: str) -> None:
        """Raise ConfigurationError (bad_url) at once if the URL cannot be read; nothing is connected to."""
        wire.conninfo(url)

    async def open(self, limit_s: float) -> None:
        try:
            await self._session.run("probe", {}, limit_s)
        except Unavailable as error:
            if error.code == "read_only":
                error.hint = await wire.read_only_because(self._info, min(limit_s, READ_ONLY_LIMIT_S))
            raise
        if isinstance(self._commits, Replicated):
            await self._must_have_standby(self._commits, limit_s)

    async def _must_have_standby(self, commits: Replicated, limit_s: float) -> None:
        """Raise an error if the store requires a standby, but no standby is set for the server's commits to wait for.

        The error is ConfigurationError. In a cluster it is Unavailable for the first 30 s: right after a failover no
        standby may follow the new primary yet.
        """
        rows = await self._session.run("replicated", commits.params(self._session.is_pooled), limit_s)
        [(standbys, *_)] = rows
        if standbys.strip():
            self._no_standby_since_s = None
        elif self._no_standby_since_s is None:
            self._no_standby_since_s = time.monotonic()
        since_s = self._no_standby_since_s
        is_early = since_s is not None and time.monotonic() - since_s < NO_STANDBY_PATIENCE_S
        commits.opened(standbys, is_early and await self._is_cluster(limit_s))

    async def _is_cluster(self, limit_s: float) -> bool:
        [(senders, slots, *_)] = await self._session.run("cluster", {}, limit_s)
        return bool(senders or slots)

    async def close(self) -> None:
        await self._session.close()
