"""SubmissionManager on a database that fails: a client hears 503 and may come again; nothing that was taken is lost."""

from __future__ import annotations

import datetime as dt
import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import psycopg
import pytest

from tests.across_packages.faults.faked_clock import FakedClock, FakedServer
from tests.across_packages.faults.test_servers_that_fail import end_others
from tests.fencehold.backends.postgres.test_disk_full import a_tablespace_on_a_small_disk, owner_says
from tests.servers.pgbouncer import PgBouncer
from tests.servers.postgres import PostgresServer
from tests.servers.small_disk import SmallDisk
from tests.submission_manager.instance.fleet import Instance, a_fleet, until

HOUR = dt.timedelta(hours=1)


@asynccontextmanager
async def an_instance(url: str, folder: Path, **settings: str) -> AsyncIterator[Instance]:
    async with a_fleet(url, folder) as fleet:
        (one,) = await fleet.start("A", **settings)
        await one.submit("first")
        await one.until_over("first")
        yield one


async def status_of(one: Instance, intent_id: str) -> int:
    """What a client hears; the intent is as long as one may be, so that a full disk has no room for it."""
    payload = {"referenceId": intent_id, "to": "+49301234", "message": "x" * 1000}
    body = {"intentId": intent_id, "submissionTarget": "sms", "payload": payload}
    return (await one._client.post(f"{one.address}/v1/intents", json=body)).status_code


async def takes_intents_again(one: Instance) -> None:
    """On a busy machine a term may end under an attempt, which is then made again; what is over is not touched."""
    before = (await one.history("first"))["attempts"]

    async def is_taken() -> bool:
        return await status_of(one, "again") == 200

    await until(is_taken, "no intent is taken")
    again, first = await one.until_over("again", "first")
    assert (again["intent"]["status"], len(again["attempts"]) > 0) == ("accepted", True)
    assert first["attempts"] == before


@pytest.mark.fault("pgbouncer-session", "service", "postgres")
@pytest.mark.needs("pgbouncer")
async def test_it_works_behind_pgbouncer_in_session_mode(
    own_postgres: PostgresServer, own_pgbouncer: Callable[..., PgBouncer], tmp_path: Path
) -> None:
    bouncer = own_pgbouncer(own_postgres, "session")
    async with an_instance(f"postgresql://postgres@127.0.0.1:{bouncer.port}/postgres", tmp_path) as one:
        await takes_intents_again(one)


@pytest.mark.fault("pgbouncer-transaction", "service", "postgres")
@pytest.mark.needs("pgbouncer")
async def test_it_works_behind_pgbouncer_in_transaction_mode(
    own_postgres: PostgresServer, own_pgbouncer: Callable[..., PgBouncer], tmp_path: Path
) -> None:
    bouncer = own_pgbouncer(own_postgres, "transaction", pool_size=3)
    async with an_instance(f"postgresql://postgres@127.0.0.1:{bouncer.port}/postgres", tmp_path) as one:
        await takes_intents_again(one)


@pytest.mark.fault("read-only", "service", "postgres")
async def test_a_database_that_takes_no_writes_is_503_and_then_goes_on(postgres_url: str, tmp_path: Path) -> None:
    async with an_instance(postgres_url, tmp_path) as one:
        with psycopg.connect(postgres_url, autocommit=True) as owner:
            owner.execute("SET default_transaction_read_only = off")
            name = owner.info.dbname
            owner.execute(f'ALTER DATABASE "{name}" SET default_transaction_read_only = on'.encode())
            end_others(owner)
            assert await status_of(one, "refused") == 503
            owner.execute(f'ALTER DATABASE "{name}" RESET default_transaction_read_only'.encode())
            end_others(owner)
        await takes_intents_again(one)


@pytest.mark.fault("disk-full", "service", "sqlite")
async def test_a_full_disk_is_503_and_then_goes_on(disk: SmallDisk, tmp_path: Path) -> None:
    async with an_instance(f"sqlite:///{disk.folder}/app.db", tmp_path) as one:
        await refuses_while_full(one, disk)


@pytest.mark.long
@pytest.mark.fault("disk-full", "service", "postgres")
async def test_a_full_disk_of_the_server_is_503_and_then_goes_on(
    own_postgres: PostgresServer, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    with a_tablespace_on_a_small_disk(own_postgres, request) as disk:
        owner_says(own_postgres, "ALTER DATABASE postgres SET default_tablespace = small")
        async with an_instance(own_postgres.dsn(), tmp_path) as one:
            await refuses_while_full(one, disk)


async def refuses_while_full(one: Instance, disk: SmallDisk) -> None:
    disk.fill()
    numbers = itertools.count()  # what is there already is answered without a write

    async def is_refused() -> bool:
        return await status_of(one, f"refused-{next(numbers)}") == 503

    await until(is_refused, "a full disk took intents")
    disk.make_room()
    await takes_intents_again(one)


@pytest.mark.needs("faketime")
@pytest.mark.fault("client-clock", "service", "postgres")
async def test_an_instance_whose_clock_is_set_forth_and_back_goes_on(
    postgres_url: str, tmp_path: Path, clock: FakedClock
) -> None:
    async with an_instance(postgres_url, tmp_path, **clock.environment) as one:
        for number, step in enumerate((HOUR, -HOUR)):
            clock.step(step)
            await one.submit(f"x{number}")
            (history,) = await one.until_over(f"x{number}")
            assert len(history["attempts"]) == 1
        assert await one.leads()


@pytest.mark.needs("faketime")
@pytest.mark.fault("client-clock", "service", "sqlite")
@pytest.mark.fault("server-clock", "service", "sqlite")
async def test_on_sqlite_an_instance_whose_clock_is_set_forth_goes_on(
    sqlite_url: str, tmp_path: Path, clock: FakedClock
) -> None:
    async with an_instance(sqlite_url, tmp_path, **clock.environment) as one:
        clock.step(HOUR)
        await takes_intents_again(one)


@pytest.mark.needs("faketime")
@pytest.mark.long
@pytest.mark.fault("server-clock", "service", "postgres")
async def test_a_server_whose_clock_is_set_forth_is_worked_with_again(
    faked_server: FakedServer, tmp_path: Path
) -> None:
    async with an_instance(faked_server.dsn(), tmp_path) as one:
        assert faked_server.clock is not None
        faked_server.clock.step(HOUR)
        await takes_intents_again(one)
