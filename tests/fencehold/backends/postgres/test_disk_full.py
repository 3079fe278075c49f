"""The disk of a PostgreSQL server is full (53100): a leader warns and tries again, and leads on when there is room."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest

import fencehold
from fencehold.backends.postgres import faults
from tests.conftest import not_run
from tests.fencehold.backends.postgres.test_outages import prepared
from tests.fencehold.runtime.outbox.scene import Heard
from tests.servers.postgres import PostgresServer
from tests.servers.process import unprivileged
from tests.servers.programs import Missing
from tests.servers.small_disk import SmallDisk, small_disk

#: 256 bytes: rows so long that a few renewals fill a page, and the table has to grow.
LONG = "\N{CLOCK FACE ONE OCLOCK}" * 64


def test_a_full_disk_is_an_outage_with_a_code_and_a_word_of_what_to_do() -> None:
    said = psycopg.errors.DiskFull('could not extend file "base/5/16396": No space left on device')
    fault = faults.of_statement(said)
    assert (type(fault), fault.code) == (fencehold.Unavailable, "disk_full")
    assert "nothing was changed" in fault.message
    assert "Make room" in fault.hint


@pytest.fixture
def disk(own_postgres: PostgresServer, request: pytest.FixtureRequest) -> Iterator[SmallDisk]:
    with a_tablespace_on_a_small_disk(own_postgres, request) as disk:
        yield disk


@contextmanager
def a_tablespace_on_a_small_disk(server: PostgresServer, request: pytest.FixtureRequest) -> Iterator[SmallDisk]:
    """It is called `small`."""
    try:
        with small_disk(server.folder / "disk") as disk:
            space = disk.folder / "space"
            space.mkdir()
            if (account := unprivileged()) is not None:
                os.chown(space, account.pw_uid, account.pw_gid)
            owner_says(server, f"CREATE TABLESPACE small LOCATION '{space}'")
            yield disk
    except Missing as missing:
        not_run(request.config, missing)


def owner_says(server: PostgresServer, statement: str) -> None:
    with psycopg.connect(server.dsn(), autocommit=True) as connection:
        connection.execute(statement.encode())


@pytest.mark.fault("disk-full", "leader")
async def test_a_server_whose_disk_is_full_at_a_renewal_costs_no_term_if_there_is_room_again_within_the_lease(
    own_postgres: PostgresServer, disk: SmallDisk
) -> None:
    heard = Heard()
    await prepared(own_postgres.dsn())
    owner_says(own_postgres, "ALTER TABLE fencehold_leases SET TABLESPACE small")
    async with fencehold.connect(own_postgres.dsn(), facts=heard) as store:
        with psycopg.connect(own_postgres.dsn()) as reader:
            reader.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            reader.execute("SELECT 1 FROM fencehold_leases")  # old versions of the row stay, as long as it may see them
            async with store.leader(LONG, lease="30s", renew_every="50ms", holder_id=LONG) as leader:
                assert await leader.wait_for_leadership(30)
                disk.fill()
                failed = await heard.once("leader_renew_failed")
                assert "[disk_full]" in failed["sql_error"]
                assert leader.is_leader
                disk.make_room()
                seen = len(heard.all("leader_renewed"))
                await heard.once("leader_renewed", times=seen + 1, lease_epoch=1)
        assert heard.all("leader_lost") == []
