"""Two PostgreSQL servers of a test's own: a primary, and a standby that streams from it.

with running_pair(binaries) as pair:
    pair.wait_for("*")                  # the primary waits with every commit for the standby; "" for nobody
    pair.standby.freeze()               # commits hang from here on
    pair.cut_waits(url)                 # as an operator who cancels what hangs
    pair.promote()                      # the standby takes writes, on a timeline of its own
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg

from tests.servers.discover import Binaries
from tests.servers.postgres import PostgresServer
from tests.servers.process import run_as_server

LIMIT_S = 30.0


class Pair:
    def __init__(self, primary: PostgresServer, standby: PostgresServer) -> None:
        self.primary, self.standby = primary, standby

    def url(self, dbname: str = "postgres", user: str = "postgres") -> str:
        """Both hosts, the primary first."""
        ports = (self.primary.port, self.standby.port)
        return f"postgresql://{user}@{','.join(f'127.0.0.1:{port}' for port in ports)}/{dbname}"

    def wait_for(self, standbys: str) -> None:
        """Let every commit of the primary wait for these; returns when it does."""
        ask(self.primary.dsn(), f"ALTER SYSTEM SET synchronous_standby_names = '{standbys}'")
        ask(self.primary.dsn(), "SELECT pg_reload_conf()")
        state = "sync" if standbys else "async"
        until(lambda: ask(self.primary.dsn(), f"SELECT 1 FROM pg_stat_replication WHERE sync_state = '{state}'"))

    def waiting(self) -> list[Any]:
        """The sessions whose commit waits for the standby."""
        return ask(self.primary.dsn(), "SELECT pid FROM pg_stat_activity WHERE wait_event = 'SyncRep'")

    def cut_waits(self) -> None:
        """Cancel every wait for the standby, as soon as there is one."""
        until(self.waiting)
        ask(
            self.primary.dsn(),
            "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'",
        )

    def promote(self) -> None:
        ask(self.standby.dsn(), "SELECT pg_promote(true, 30)")


@contextmanager
def running_pair(binaries: Binaries) -> Iterator[Pair]:
    primary, standby = PostgresServer.of(binaries), PostgresServer.of(binaries)
    try:
        primary.start()
        copy: list[str | Path] = [primary.program("pg_basebackup"), "-d", primary.dsn(), "-D", standby._data]
        run_as_server([*copy, "-R", "-X", "stream", "-c", "fast"], primary.environment(), 60.0)
        standby.settings["hot_standby"] = "on"
        standby.start()
        until(lambda: ask(primary.dsn(), "SELECT 1 FROM pg_stat_replication WHERE state = 'streaming'"))
        yield Pair(primary, standby)
    finally:
        standby.close()
        primary.close()


def ask(url: str, statement: str) -> list[Any]:
    with psycopg.connect(url, autocommit=True, connect_timeout=10) as pg:
        cursor = pg.execute(statement.encode())
        return cursor.fetchall() if cursor.description else []


def until(condition: Callable[[], object]) -> None:
    ends_s = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < ends_s, "it did not come about in time"
        time.sleep(0.02)
