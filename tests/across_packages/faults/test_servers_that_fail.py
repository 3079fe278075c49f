"""PostgreSQL killed, restarted, cut off, silent, read-only, behind PgBouncer: an error says so, and work goes on."""

from collections.abc import Callable

import psycopg
import pytest

import fencehold
from fencehold.testing.proxy import ThreadedFaultProxy
from tests.across_packages.faults.conftest import Used
from tests.across_packages.faults.uses import Use, works_on
from tests.fencehold.backends.postgres.test_disk_full import a_tablespace_on_a_small_disk, owner_says
from tests.fencehold.runtime.outbox.scene import eventually
from tests.servers.pgbouncer import PgBouncer
from tests.servers.postgres import PostgresServer

NOT_DONE = (fencehold.Unavailable, fencehold.Uncertain, fencehold.LeaseLost)


@pytest.mark.fault("server-kill", "each", "postgres")
async def test_a_server_that_was_killed_is_told_and_worked_with_again(own_postgres: PostgresServer, used: Used) -> None:
    async with used(own_postgres.dsn()) as use:
        own_postgres.kill9()
        with pytest.raises(NOT_DONE):
            await use.work()
        own_postgres.start()
        await use.recovers()


@pytest.mark.fault("server-restart", "each", "postgres")
async def test_a_server_that_was_restarted_is_worked_with_again(own_postgres: PostgresServer, used: Used) -> None:
    async with used(own_postgres.dsn()) as use:
        own_postgres.restart()
        await use.recovers()


@pytest.mark.fault("reset", "each", "postgres")
@pytest.mark.fault("frozen-tcp", "each", "postgres")
@pytest.mark.parametrize("verb", ["cut", pytest.param("freeze", marks=pytest.mark.long)])
async def test_a_network_that_is_cut_or_silent_is_told_within_the_limit(
    verb: str, postgres_server: PostgresServer, postgres_url: str, used: Used
) -> None:
    with ThreadedFaultProxy("127.0.0.1", postgres_server.port) as proxy:
        url = postgres_url.replace(f":{postgres_server.port}/", f":{proxy.port}/")
        async with used(url) as use:
            getattr(proxy, verb)()
            with pytest.raises(NOT_DONE):
                await use.work()
            proxy.heal()
            await use.recovers()


@pytest.mark.fault("read-only", "each", "postgres")
async def test_a_database_that_takes_no_writes_is_told_and_worked_with_when_it_does(
    postgres_url: str, used: Used
) -> None:
    async with used(postgres_url) as use:
        with psycopg.connect(postgres_url, autocommit=True) as owner:
            owner.execute("SET default_transaction_read_only = off")
            name = owner.info.dbname
            owner.execute(f'ALTER DATABASE "{name}" SET default_transaction_read_only = on'.encode())
            end_others(owner)
            await eventually(lambda: is_refused_as_read_only(use))
            owner.execute(f'ALTER DATABASE "{name}" RESET default_transaction_read_only'.encode())
            end_others(owner)
        await use.recovers()


async def is_refused_as_read_only(use: Use) -> bool:
    """The first answer may be that the connection was ended."""
    try:
        await use.work()
    except fencehold.FenceholdError as error:
        return "read-only" in str(error)
    return False


def end_others(owner: psycopg.Connection) -> None:
    owner.execute(
        "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
        " WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )


@pytest.mark.fault("pgbouncer-session", "each", "postgres")
@pytest.mark.needs("pgbouncer")
async def test_everything_works_behind_pgbouncer_in_session_mode(
    own_postgres: PostgresServer, own_pgbouncer: Callable[..., PgBouncer], used: Used
) -> None:
    await works_behind(own_pgbouncer(own_postgres, "session"), used)


@pytest.mark.fault("pgbouncer-transaction", "each", "postgres")
@pytest.mark.needs("pgbouncer")
async def test_everything_works_behind_pgbouncer_in_transaction_mode(
    own_postgres: PostgresServer, own_pgbouncer: Callable[..., PgBouncer], used: Used
) -> None:
    await works_behind(own_pgbouncer(own_postgres, "transaction", pool_size=2), used)


async def works_behind(bouncer: PgBouncer, used: Used) -> None:
    async with used(f"postgresql://postgres@127.0.0.1:{bouncer.port}/postgres") as use:
        await use.work()
        await use.work()


@pytest.mark.long
@pytest.mark.parametrize(
    "capability", ["fence", "outbox", "items"]
)  # of a leader: tests/fencehold/backends/postgres/test_disk_full.py
@pytest.mark.fault("disk-full", "each", "postgres")
async def test_a_server_whose_disk_is_full_is_told_and_worked_with_when_there_is_room(
    own_postgres: PostgresServer, used: Used, request: pytest.FixtureRequest
) -> None:
    with a_tablespace_on_a_small_disk(own_postgres, request) as disk:
        owner_says(own_postgres, "ALTER DATABASE postgres SET default_tablespace = small")
        async with used(own_postgres.dsn()) as use:
            disk.fill()
            with pytest.raises((fencehold.Unavailable, psycopg.errors.DiskFull)) as caught:
                await works_on(use)  # the error of a statement of the caller's own is the driver's
            assert getattr(caught.value, "code", "disk_full") == "disk_full"
            disk.make_room()
            await use.recovers()
