"""A database for the outbox's crash run whose restarts are failovers, and one where each failover loses commits."""

import itertools
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import psycopg

from tests.across_packages.cluster.losing import rows
from tests.fencehold.runtime.outbox.crash_run.database import AUDIT_SQL, COUNTS_SQL, POSTGRES_AUDIT, POSTGRES_ROWS_SQL
from tests.fencehold.runtime.outbox.crash_run.referee import Change, Row
from tests.servers.cluster import Cluster
from tests.servers.process import ServerFailed

EVENTS_SQL = "SELECT tracking_id::text FROM outbox"
INTENTS_SQL = "SELECT intent_id FROM submission_intents"
COMPLETED_TWICE_SQL = """
SELECT tracking_id FROM crash_audit WHERE new = 'COMPLETED' AND old <> 'COMPLETED' GROUP BY 1 HAVING count(*) > 1
"""
LOSE_LIMIT_S = MORE_LIMIT_S = 30.0
UNSEEN = 20  # events that no standby sees, at the least
SLICE_S = 8.0  # over which the events of one failover are added: from a second before it on
SPLIT_S = 4.0  # longer than a lease of the workers: what they claimed could be had by others, were there two sides


class FailingOver:
    """Four kinds of failover in turn; each returns when all nodes are back. Tables must be there already."""

    restarts = True

    def __init__(self, cluster: Cluster, database: str, planned: int) -> None:
        self.cluster, self.database = cluster, database
        self.url = cluster.url(database)
        self.failovers, self._planned = 0, planned
        self.since_s = time.monotonic()  # the failover before
        self.added_from: list[int] = []  # how many events were there when each of them began
        self._kinds = itertools.cycle([self._crash, self._switchover, self._power_failure, self._split])
        self.query(POSTGRES_AUDIT)

    def pace(self) -> float:
        """Which part of the events is due: some before each failover, and the most of them while it happens."""
        if not self.failovers and not self.added_from:
            self.since_s = max(self.since_s, time.monotonic() - 1.0)  # workers were still starting
        under_way = min(1.0, (time.monotonic() - self.since_s) / SLICE_S)
        return min(1.0, (self.failovers + under_way) / self._planned)

    def restart(self, crash: bool) -> None:
        self.added_from.append(self._more_than(self.added_from[-1] if self.added_from else 0))
        self.fail_over()
        self.failovers, self.since_s = self.failovers + 1, time.monotonic()

    def _more_than(self, before: int) -> int:
        """Wait until there are more events than at the last failover; return how many. A busy machine needs a while."""
        give_up_at = time.monotonic() + MORE_LIMIT_S
        while (added := len(self.rows())) <= before:
            if time.monotonic() > give_up_at:
                raise ServerFailed(f"no event was added within {MORE_LIMIT_S} s")
        return added

    def fail_over(self) -> None:
        next(self._kinds)()
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

    def _split(self) -> None:
        """Patroni hangs and its PostgreSQL runs on: whoever is connected there stays, until it is demoted."""
        old = self.cluster.primary()
        old.freeze_patroni()
        self.cluster.expire_leader_key()
        self.cluster.wait_for_primary(other_than=old)
        time.sleep(SPLIT_S)

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

    def __init__(self, cluster: Cluster, database: str, planned: int) -> None:
        super().__init__(cluster, database, planned)
        self.lost = Lost()
        self.lost_each: list[int] = []  # events, by each failover

    def fail_over(self) -> None:
        old = self.cluster.primary()
        before = self._count(old.url(self.database))
        old.freeze_walsenders()
        give_up_at = time.monotonic() + LOSE_LIMIT_S
        while self._count(old.url(self.database)) - before < UNSEEN:
            if time.monotonic() > give_up_at:
                raise ServerFailed("nothing was written that could be lost")
        with self.cluster.losing(old) as (new, branch):
            kept = self._ids(new.url(self.database))
            branch.start()
            held = self._ids(branch.dsn(self.database))
        self.lost.events |= held.events - kept.events
        self.lost.intents |= held.intents - kept.intents
        self.lost_each.append(len(held.events - kept.events))
        self.cluster.rejoin()

    def _count(self, url: str) -> int:
        return len(rows(url, EVENTS_SQL))

    def _ids(self, url: str) -> Lost:
        return Lost({row[0] for row in rows(url, EVENTS_SQL)}, {row[0] for row in rows(url, INTENTS_SQL)})
