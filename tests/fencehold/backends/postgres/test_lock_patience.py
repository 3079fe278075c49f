"""`init` waits for no lock for long on PostgreSQL: leaders renew meanwhile, and a person hears what it waits for."""

import asyncio
import uuid

import psycopg
import pytest

import fencehold
from fencehold.backends.postgres.backend import PostgresBackend
from fencehold.backends.sql.lock_patience import LOCK_WAIT_S_MAX, LockPatience
from tests.across_packages.upgrading import old_tables
from tests.across_packages.upgrading.test_old_tables import OLD_INSERT, run
from tests.fencehold.cli.cli_process import Command
from tests.servers.postgres import PostgresServer
from tests.servers.roles import Role

TABLE = "fencehold_leases"
RENEWALS = 5
# Longer than a lock is ever waited for, much shorter than the transaction that is open here.
RENEWAL_LIMIT_MS = 5_000


async def renew(pg: psycopg.AsyncConnection) -> None:
    await pg.execute(f"UPDATE {TABLE} SET renewed_at = clock_timestamp() WHERE lease_name = 'job'".encode())


async def test_a_step_that_has_to_wait_for_a_lock_lets_renewals_pass_and_says_what_it_waits_for(
    postgres_url: str,
) -> None:
    old_tables.make(postgres_url)
    run(postgres_url, OLD_INSERT.format(name="job"))
    said: list[str] = []
    async with (
        await psycopg.AsyncConnection.connect(postgres_url, application_name="report") as reader,
        await psycopg.AsyncConnection.connect(postgres_url, autocommit=True) as leader,
    ):
        await reader.execute(f"SELECT FROM {TABLE}".encode())
        await leader.execute(f"SET statement_timeout = {RENEWAL_LIMIT_MS}".encode())
        upgrading = asyncio.create_task(PostgresBackend(postgres_url, TABLE).schema.init(30.0, said.append))
        while not said:
            await renew(leader)
        for _ in range(RENEWALS):
            await renew(leader)
            await asyncio.sleep(0.1)
        assert not upgrading.done()
        await reader.rollback()
        assert await upgrading == ["0002_lease_id", "0003_grant_timeline"]
        await renew(leader)
        assert f"The table {TABLE} is in use by session {reader.info.backend_pid} (postgres, report" in said[0]


async def test_of_a_session_that_the_role_may_not_look_into_no_time_is_invented(postgres_url: str) -> None:
    old_tables.make(postgres_url)
    role = Role(postgres_url, f"clerk_{uuid.uuid4().hex}")
    said: asyncio.Queue[str] = asyncio.Queue()
    try:
        with psycopg.connect(postgres_url, application_name="report") as reader:
            for table in (TABLE, "fencehold_schema"):
                reader.execute(f"ALTER TABLE {table} OWNER TO {role.name}".encode())
            reader.execute(f"GRANT CREATE ON SCHEMA public TO {role.name}".encode())
            reader.commit()
            reader.execute(f"SELECT FROM {TABLE}".encode())
            upgrading = asyncio.create_task(PostgresBackend(role.url, TABLE).schema.init(30.0, said.put_nowait))
            first = await said.get()
            reader.rollback()
            await upgrading
            user, pid = reader.info.user, reader.info.backend_pid
    finally:
        with psycopg.connect(postgres_url) as owner:
            owner.execute(f"REASSIGN OWNED BY {role.name} TO CURRENT_USER".encode())
        role.drop()
    assert first.startswith(f"The table {TABLE} is in use by session {pid} ({user}, report")
    assert "open for" not in first


async def test_a_lock_that_is_not_to_be_had_within_the_limit_is_said_to_be_busy_and_nothing_was_changed(
    postgres_url: str,
) -> None:
    old_tables.make(postgres_url)
    with psycopg.connect(postgres_url, application_name="report") as reader:
        reader.execute(f"SELECT FROM {TABLE}".encode())
        with pytest.raises(fencehold.Unavailable) as caught:
            await PostgresBackend(postgres_url, TABLE).schema.init(4.0)
    assert caught.value.code == "busy"
    assert "report" in caught.value.message
    missing = await PostgresBackend(postgres_url, TABLE).schema.missing(10.0)
    assert missing == [f"{TABLE}.{column}" for column in ("grant_system", "grant_timeline", "lease_id")]


async def test_a_server_that_falls_silent_while_init_waits_for_a_lock_has_changed_nothing(
    own_postgres: PostgresServer,
) -> None:
    """It was given up before the commit, so its outcome is known: as busy a server as any."""
    url = own_postgres.dsn()
    old_tables.make(url)
    said: list[str] = []
    with psycopg.connect(url, application_name="report") as reader:
        reader.execute(f"SELECT FROM {TABLE}".encode())
        upgrading = asyncio.create_task(PostgresBackend(url, TABLE).schema.init(2.0, said.append))
        while not said:  # noqa: ASYNC110 - a matter of a few turns
            await asyncio.sleep(0.01)
        own_postgres.freeze()
        with pytest.raises(fencehold.Unavailable) as caught:
            await upgrading
        own_postgres.thaw()
    assert (caught.value.code, "report" in caught.value.message) == ("busy", True)


async def test_on_tables_that_are_up_to_date_init_waits_for_nobody(postgres_url: str) -> None:
    """Of many programs that start at once, each with its own init, none has to wait for the others."""
    statements = PostgresBackend(postgres_url, TABLE).schema._statements
    assert await PostgresBackend(postgres_url, TABLE).schema.init(10.0)
    said: list[str] = []
    with psycopg.connect(postgres_url) as other:
        other.execute(statements["steps_lock"].encode())
        other.execute(f"LOCK TABLE {TABLE} IN SHARE ROW EXCLUSIVE MODE".encode())
        assert await PostgresBackend(postgres_url, TABLE).schema.init(10.0, said.append) == []
    assert said == []


def test_the_command_says_what_it_waits_for_and_goes_on_when_it_may(postgres_url: str) -> None:
    old_tables.make(postgres_url)
    with psycopg.connect(postgres_url, application_name="report") as reader:
        reader.execute(f"SELECT FROM {TABLE}".encode())
        with Command(postgres_url, "init") as command:
            assert command.child.stderr is not None
            first = command.child.stderr.readline()
            assert b"waiting: The table fencehold_leases is in use by session" in first
            reader.rollback()
            out, _ = command.child.communicate(timeout=30)
    assert (command.child.returncode, b"0002_lease_id" in out) == (0, True)


def test_no_lock_is_waited_for_longer_than_a_second_and_each_wait_is_followed_by_a_pause() -> None:
    patience = LockPatience("The table", lambda _: None, lambda: 60.0)
    for _ in range(20):
        waited_s = patience.wait_ms / 1000
        assert 0 < waited_s <= LOCK_WAIT_S_MAX == 1.0
        assert patience.refused("") >= waited_s


async def test_the_printed_script_upgrades_old_tables_can_be_repeated_and_waits_for_no_lock(postgres_url: str) -> None:
    old_tables.make(postgres_url)
    script = PostgresBackend(postgres_url, TABLE).schema.script().encode()
    async with (
        await psycopg.AsyncConnection.connect(postgres_url) as reader,
        await psycopg.AsyncConnection.connect(postgres_url, autocommit=True) as owner,
    ):
        await reader.execute(f"SELECT FROM {TABLE}".encode())
        with pytest.raises(psycopg.errors.LockNotAvailable):
            await owner.execute(script)
        await owner.execute("ROLLBACK")
        await reader.rollback()
        for _ in range(2):
            await owner.execute(script)
    assert await PostgresBackend(postgres_url, TABLE).schema.init(10.0) == []
