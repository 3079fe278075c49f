"""Table names on PostgreSQL: in a schema of their own, and as long as they may be."""

from collections.abc import Callable
from contextlib import suppress

import psycopg
import pytest

from fencehold.backends.postgres.backend import PostgresBackend
from fencehold.model import names
from fencehold.model.errors import ConfigurationError, LeaseLost
from fencehold.testing.conformance.leases.caller_fences import count
from fencehold.testing.conformance.leases.parts import hearing
from fencehold.testing.conformance.suite import LEASE, START, granted, plenty, release, renew, take
from fencehold.testing.harness import COUNT
from tests.fencehold.testing.conformance.postgres_harness import PostgresHarness
from tests.servers.postgres import AnyPostgres

LONGEST = "t" * names.TABLE_NAME_BYTES_MAX


@pytest.fixture
def url(postgres_server: AnyPostgres, database_of: Callable[[AnyPostgres], str]) -> str:
    return database_of(postgres_server)


@pytest.mark.parametrize("schema", ["s" * 15, "s" * 26, "s" * 63], ids=len)
def test_a_name_that_postgresql_would_cut_is_refused_at_once(schema: str):
    with pytest.raises(ConfigurationError) as caught:
        names.table_name(f"{schema}.{LONGEST}")
    assert caught.value.code == "bad_name"


@pytest.mark.parametrize("schema", ["", "s" * 14], ids=len)
async def test_the_longest_table_name_works_in_all_its_parts(url: str, schema: str):
    table = names.table_name(f"{schema}.{LONGEST}" if schema else LONGEST)
    with psycopg.connect(url, autocommit=True) as connection:
        if schema:
            connection.execute(f"CREATE SCHEMA {schema}".encode())
    one, two = PostgresBackend(url, table), PostgresBackend(url, table)
    assert await one.schema.init(10.0) != []
    assert await two.schema.init(10.0) == []
    heard = await hearing(two)
    key = await take(one, "job", "ada")
    assert await heard.get() == ("acquired", "job")
    granted(await renew(one, key))
    async with one.fences.transaction(key, plenty) as tx:
        await tx.execute("SELECT 1")
    granted(await release(two, key))
    for backend in (one, two):
        await backend.fences.close()
        await backend.close()


async def test_after_a_refused_fence_a_psycopg_transaction_cannot_be_written_on(url: str):
    """A caller that passes over the refusal and goes on does not get its later writes in either."""
    harness = PostgresHarness(url)
    await harness.open()
    backend = await harness.client()
    await harness.set_clock(START)
    key = await take(backend, "job", "ada")
    await harness.set_clock(START + LEASE)
    for door in (door for door in harness.sql.doors() if "psycopg" in door.title):
        async with door.open() as caller:
            with pytest.raises(LeaseLost):
                await backend.fences.fence(caller.target, key)
            with suppress(psycopg.errors.InFailedSqlTransaction):
                await caller.execute(COUNT)
            await caller.commit()
    assert await count(harness) == 0
    await harness.close()
