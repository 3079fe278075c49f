"""A database for the outbox's crash run whose restarts are failovers, and one where each failover loses commits."""

import itertools
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import psycopg

from tests.cluster.losing import rows
from tests.outbox.crash_database import AUDIT_SQL, COUNTS_SQL, POSTGRES_AUDIT, POSTGRES_ROWS_SQL
from tests.outbox.crash_referee import Change, Row
from tests.servers.cluster import Cluster
from tests.servers.process import ServerFailed

EVENTS_SQL = "SELECT tracking_id::text FROM outbox"
INTENTS_SQL = "SELECT intent_id FROM submission_intents"
COMPLETED_TWICE_SQL = """
SELECT tracking_id FROM crash_audit WHERE new = 'COMPLETED' AND old <> 'COMPLETED' GROUP BY 1 HAVING count(*) > 1
"""
LOSE_LIMIT_S = 30.0


class FailingOver:
    """Three kinds of failover in turn; each returns when all nodes are back. Tables must be there already."""

    restarts = True

    def __init__(self, cluster: Cluster, database: str) -> None:
        self.cluster, self.database = cluster, database
        self.url = cluster.url(database)
        self.failovers = 0
        self._kinds = itertools.cycle([self._crash, self._switchover, self._power_failure])
        self.query(POSTGRES_AUDIT)

    def restart(self, crash: bool) -> None:
        next(self._kinds)()
        self.failovers += 1
        self.cluster.rejoin()

    def _crash(self) -> None:
        old = self.cluster.primary()
        old.kill_postmaster()
        self.cluster.wait_for_primary(other_than=old)

    def _switchover(self) -> None:
        self.cluster.switchover()

    def _power_failure(self) -> None:
        old = self.cluster.primary()
        old.power_off()
        self.cluster.expire_leader_key()
        self.cluster.wait_for_primary(other_than=old)

    def counts(self) -> dict[str, int]:
        return dict(self.query(COUNTS_SQL))

    def changes(self) -> list[Change]:
        return [Change(*row) for row in self.query(AUDIT_SQL)]

    def rows(self) -> list[Row]:
        return [Row(*row) for row in self.query(POSTGRES_ROWS_SQL)]

    def completed_twice(self) -> list[tuple[Any, ...]]:
        """By the history that the surviving branch kept."""
        return self.query(COMPLETED_TWICE_SQL)

    def complaints(self) -> Counter[str]:
        return Counter()

    def close(self) -> None:
        """The cluster is the session's."""

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.url, autocommit=True, connect_timeout=2) as connection:
            cursor = connection.execute(sql.encode())
            return cursor.fetchall() if cursor.description else []


@dataclass
class Lost:
    """What old primaries held and their successors did not, by what the nodes themselves say."""

    events: set[str] = field(default_factory=set)
    intents: set[str] = field(default_factory=set)


class Losing(FailingOver):
    """At each failover no standby sees the last commits; `lost` is read from the old primary's data, started alone."""

    def __init__(self, cluster: Cluster, database: str, is_enough: Callable[[int], bool]) -> None:
        """`is_enough(count)`: so many new rows, unseen by the standbys, will do."""
        super().__init__(cluster, database)
        self.lost = Lost()
        self._is_enough = is_enough

    def restart(self, crash: bool) -> None:
        old = self.cluster.primary()
        before = self._count(old.url(self.database))
        old.freeze_walsenders()
        give_up_at = time.monotonic() + LOSE_LIMIT_S
        while not self._is_enough(self._count(old.url(self.database)) - before):
            if time.monotonic() > give_up_at:
                raise ServerFailed("nothing was written that could be lost")
        with self.cluster.losing(old) as (new, branch):
            kept = self._ids(new.url(self.database))
            branch.start()
            held = self._ids(branch.dsn(self.database))
        self.lost.events |= held.events - kept.events
        self.lost.intents |= held.intents - kept.intents
        self.failovers += 1
        self.cluster.rejoin()

    def _count(self, url: str) -> int:
        return len(rows(url, EVENTS_SQL))

    def _ids(self, url: str) -> Lost:
        return Lost({row[0] for row in rows(url, EVENTS_SQL)}, {row[0] for row in rows(url, INTENTS_SQL)})
