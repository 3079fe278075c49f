"""A grant that was answered is on disk, and on the standby, whatever the server's own setting: no epoch comes twice."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

import fencehold
from fencehold.backends.postgres import wire
from fencehold.backends.postgres.backend import PostgresBackend
from fencehold.backends.sql.statements import ITEMS, Statements, pyformat
from fencehold.model.election.rules import Ask, Lease
from fencehold.model.errors import Uncertain
from fencehold.ports.checkup import Condition, State
from fencehold.ports.leases import Answer
from pgleaderlock.companion import Companion
from tests.servers.pgbouncer import PgBouncer
from tests.servers.postgres import PostgresServer
from tests.servers.process import run_as_server

LIMIT_S = 20.0
TABLE = "fencehold_leases"
LEASES = Statements("fencehold.backends.postgres", TABLE, pyformat)
ITEM_STATEMENTS = Statements("fencehold.backends.postgres", ITEMS.default_table, pyformat, ITEMS)
LOCKS = Statements("pgleaderlock", TABLE, pyformat)

ITEM = {"kind": "deal", "holder": "me", "lease_ms": 1000}
GRANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "acquire": (LEASES["acquire"], {"name": "a", "holder": "me", "lease": 1.0, "nonce": "n"}),
    "acquire, taken over": (LEASES["acquire"], {"name": "lapsed", "holder": "me", "lease": 1.0, "nonce": "n"}),
    "acquire, repeated": (LEASES["acquire"], {"name": "held", "holder": "me", "lease": 1.0, "nonce": "n"}),
    "seize": (LOCKS["seize"], {"name": "b", "holder": "me", "lease": 1.0, "nonce": "n"}),
    "item acquire": (ITEM_STATEMENTS["acquire"], {**ITEM, "id": "7", "patience": "1s"}),
    "next_for_state": (
        ITEM_STATEMENTS["next_for_state"],
        {**ITEM, "state": "NEW", "limit": 1, "skip": [], "since": "-infinity", "before": "infinity"},
    ),
}


# --- what each statement sets ---


@pytest.mark.parametrize("grant", GRANTS)
async def test_every_statement_that_grants_raises_what_is_below_on_for_its_own_transaction(
    postgres_url: str, grant: str
) -> None:
    async with fencehold.connect(postgres_url) as store:
        await store.init()
        await store.items("deal").put("7", state="NEW", document={})
        backend = PostgresBackend(postgres_url, TABLE)
        await granted(backend.leases.acquire(Ask("held", "me", 600.0, "n"), LIMIT_S))
        await granted(backend.leases.acquire(Ask("lapsed", "me", 0.001, "m"), LIMIT_S))
        await backend.close()
    raised = {"off": "on", "local": "on", "remote_write": "on", "on": "on", "remote_apply": "remote_apply"}
    statement, params = GRANTS[grant]
    with psycopg.connect(postgres_url) as pg:
        for before, during in raised.items():
            pg.execute(f"SET synchronous_commit = {before}".encode())
            pg.commit()
            assert pg.execute(statement.encode(), params).fetchall(), "nothing was granted"
            assert setting(pg) == during
            pg.rollback()
            assert setting(pg) == before


def setting(pg: psycopg.Connection[Any]) -> str:
    row = pg.execute("SHOW synchronous_commit").fetchone()
    assert row is not None
    return str(row[0])


# --- a crash right after a grant ---


@pytest.mark.long
@pytest.mark.limit(180)
async def test_with_synchronous_commit_off_a_crash_right_after_a_grant_gives_no_epoch_and_no_token_twice(
    own_postgres: PostgresServer,
) -> None:
    """The server's writer of WAL sleeps for 10 s: what no commit forces to disk is lost with the crash."""
    url = own_postgres.dsn()
    configure(own_postgres, synchronous_commit="off", wal_writer_delay="10s", autovacuum="off")
    for name, grant in (
        ("acquire", acquire), ("seize", seize), ("item acquire", item_acquire), ("next_for_state", next_for_state),
    ):  # fmt: skip
        async with fencehold.connect(url) as store:
            await store.init()
            await store.items("deal").put(name, state=name.upper(), document={})
        run(url, "CHECKPOINT")
        first = await grant(url)
        own_postgres.kill9()
        own_postgres.start()
        assert await grant(url) > first, name


@pytest.mark.long
@pytest.mark.limit(120)
@pytest.mark.needs("pgbouncer")
async def test_behind_pgbouncer_it_is_the_same(
    own_postgres: PostgresServer, own_pgbouncer: Callable[..., PgBouncer]
) -> None:
    configure(own_postgres, synchronous_commit="off", wal_writer_delay="10s", autovacuum="off")
    async with fencehold.connect(own_postgres.dsn()) as store:
        await store.init()
    run(own_postgres.dsn(), "CHECKPOINT")
    pooled = own_pgbouncer(own_postgres, "transaction").dsn()
    first = await acquire(pooled)
    own_postgres.kill9()
    own_postgres.start()
    assert await acquire(own_postgres.dsn()) > first


def configure(server: PostgresServer, **settings: str) -> None:
    server.stop()
    server.settings |= settings
    server.start()


def run(url: str, statement: str) -> list[Any]:
    with closing(psycopg.connect(url, autocommit=True)) as pg:
        cursor = pg.execute(statement.encode())
        return cursor.fetchall() if cursor.description else []


async def acquire(url: str) -> int:
    backend = PostgresBackend(url, TABLE)
    try:
        answer: Answer | None = None
        while not isinstance(answer, Lease):
            answer = await backend.leases.acquire(Ask("a", "me", 0.2, ""), LIMIT_S)
            await asyncio.sleep(0 if isinstance(answer, Lease) else 0.02)
        return answer.epoch
    finally:
        await backend.close()


async def granted(asking: Awaitable[Answer]) -> Lease:
    answer = await asking
    assert isinstance(answer, Lease)
    return answer


class OneConnection:
    """What the companion of a lock runs its statements on."""

    def __init__(self, pg: psycopg.AsyncConnection[Any]) -> None:
        self._pg = pg

    async def run(self, statement: str, params: dict[str, Any], limit_s: float) -> tuple[Any, ...] | None:
        return await (await self._pg.execute(statement.encode(), params)).fetchone()


async def seize(url: str) -> int:
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as pg:
        return await Companion(wire.conninfo(url), "b", TABLE).seize(OneConnection(pg), 0.2, LIMIT_S)


async def item_acquire(url: str) -> int:
    items = PostgresBackend(url, TABLE).items("deal")
    try:
        answer: Any = await items.leases.acquire("item acquire", "me", 0.2, LIMIT_S)
        return int(answer.token)
    finally:
        await items.close()


async def next_for_state(url: str) -> int:
    items = PostgresBackend(url, TABLE).items("deal")
    try:
        found: list[Any] = []
        while not found:
            found = await items.leases.next_for_state("NEXT_FOR_STATE", 1, "me", 0.2, LIMIT_S)
            await asyncio.sleep(0 if found else 0.02)
        return int(found[0].token)
    finally:
        await items.close()


# --- what a server forces on everybody ---


async def durability(url: str) -> Condition:
    async with fencehold.connect(url) as store:
        [found] = [one for one in await store.checkup.conditions() if one.check == "durability"]
        return found


async def test_a_table_that_is_empty_after_a_crash_is_named(postgres_url: str) -> None:
    async with fencehold.connect(postgres_url) as store:
        await store.init()
    assert (await durability(postgres_url)).state is State.OK
    run(postgres_url, f"ALTER TABLE {TABLE} SET UNLOGGED")
    found = await durability(postgres_url)
    assert (found.state, found.detail) == (State.WARNING, f"the table {TABLE} is UNLOGGED: after a crash it is empty")


@pytest.mark.long
async def test_a_server_without_fsync_is_named(own_postgres: PostgresServer) -> None:
    configure(own_postgres, fsync="off", full_page_writes="off")
    found = await durability(own_postgres.dsn())
    assert found.state is State.WARNING
    assert [risk.split()[0] for risk in found.detail.split("; ")] == ["fsync", "full_page_writes"]


# --- a standby that must have it ---


@asynccontextmanager
async def standby_of(primary: PostgresServer) -> AsyncIterator[PostgresServer]:
    """A second server that follows the first, which waits for it with every commit."""
    standby = PostgresServer(primary.program("postgres").parent, primary.version, primary._lib)
    try:
        copy: list[str | Path] = [primary.program("pg_basebackup"), "-d", primary.dsn(), "-D", standby._data]
        run_as_server([*copy, "-R", "-X", "stream", "-c", "fast"], primary.environment(), 60.0)
        standby.settings["hot_standby"] = "on"
        await asyncio.to_thread(standby.start)
        run(primary.dsn(), "ALTER SYSTEM SET synchronous_standby_names = '*'")
        run(primary.dsn(), "SELECT pg_reload_conf()")
        await until(lambda: run(primary.dsn(), "SELECT 1 FROM pg_stat_replication WHERE sync_state = 'sync'"))
        yield standby
    finally:
        standby.close()


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(LIMIT_S):
        while not await asyncio.to_thread(condition):  # noqa: ASYNC110 - the server tells nobody
            await asyncio.sleep(0.02)


@pytest.mark.long
@pytest.mark.limit(120)
async def test_a_repeated_request_is_not_answered_before_the_standby_has_the_grant(
    own_postgres: PostgresServer,
) -> None:
    url = own_postgres.dsn()
    backend = PostgresBackend(url, TABLE)
    await backend.schema.init(LIMIT_S)
    ask = Ask("job", "ada", 600.0, "one and the same")
    async with standby_of(own_postgres) as standby:
        standby.freeze()
        with pytest.raises(Uncertain):
            await backend.leases.acquire(ask, 1.0)
        # Its session waits for the standby, and nobody sees what it wrote. Ended, as by a restart, it leaves the grant.
        run(url, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'")
        await until(lambda: run(url, f"SELECT 1 FROM {TABLE}"))
        with pytest.raises(Uncertain):
            await backend.leases.acquire(ask, 1.0)
        standby.thaw()
        lease = await granted(backend.leases.acquire(ask, LIMIT_S))
        assert lease.epoch == 1
        assert run(standby.dsn(), f"SELECT holder_id, lease_epoch FROM {TABLE}") == [("ada", 1)]
    await backend.close()
