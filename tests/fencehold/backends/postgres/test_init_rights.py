"""Who may init: with the printed GRANTs, on tables that are up to date; to create them, only a role that may."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import psycopg
import pytest

import fencehold
from fencehold.cli.sql.command import _script

ROLE = "init_clerk"


@asynccontextmanager
async def clerk(url: str) -> AsyncIterator[tuple[psycopg.AsyncConnection, str]]:
    """The owner's connection, and the address for a role that owns nothing and may create nothing."""
    info = psycopg.conninfo.conninfo_to_dict(url)
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as pg:
        await pg.execute(f"DROP ROLE IF EXISTS {ROLE}")
        await pg.execute(f"CREATE ROLE {ROLE} LOGIN")
        await pg.execute("REVOKE CREATE ON SCHEMA public FROM public")
        try:
            yield pg, f"postgresql://{ROLE}@127.0.0.1:{info['port']}/{info['dbname']}"
        finally:
            await pg.execute(f"DROP OWNED BY {ROLE}")
            await pg.execute(f"DROP ROLE {ROLE}")


async def make(pg: psycopg.AsyncConnection, table: str, outbox: str) -> None:
    """The tables and the rights, exactly as `fencehold sql init` prints them."""
    script = _script("postgresql", table, [outbox], with_items=True)
    await pg.execute(script.encode())
    for grant in re.findall(r"^-- (GRANT .* TO) app;$", script, re.MULTILINE):
        await pg.execute(f"{grant} {ROLE}".encode())


@pytest.mark.parametrize("schema", ["", "ops."])
async def test_a_role_with_the_printed_grants_finds_everything_up_to_date(postgres_url: str, schema: str) -> None:
    table, outbox = f"{schema}fencehold_leases", f"{schema}outbox"
    async with clerk(postgres_url) as (pg, url):
        await pg.execute("CREATE SCHEMA ops")
        await make(pg, table, outbox)
        async with fencehold.connect(url, table=table) as store:
            store.outbox(outbox)
            assert await store.init() == []
            assert await store.leases.acquire("x", "me")
            items = store.items("deal")
            await items.put("7", state="NEW", document={})
            [item] = await items.next_for_state("NEW")
            await items.delete(item)


async def test_a_role_that_may_not_create_hears_who_must(postgres_url: str) -> None:
    async with clerk(postgres_url) as (pg, url):
        await refused(url, "fencehold init")
        await make(pg, "fencehold_leases", "outbox")
        await pg.execute("DROP TABLE outbox")
        await refused(url, "fencehold init --outbox outbox")


async def refused(url: str, command: str) -> None:
    async with fencehold.connect(url) as store:
        store.outbox()
        with pytest.raises(fencehold.ConfigurationError) as caught:
            await store.init()
    assert caught.value.code == "no_permission"
    assert f"owns the schema must run `{command}`" in caught.value.hint


async def test_tables_further_down_the_search_path_are_not_taken_for_ours(postgres_url: str) -> None:
    async with await psycopg.AsyncConnection.connect(postgres_url, autocommit=True) as pg:
        await pg.execute("CREATE SCHEMA tenant")
    async with fencehold.connect(postgres_url) as store:
        store.outbox("shared_events")
        assert await store.init()
    mark = "&" if "?" in postgres_url else "?"
    async with fencehold.connect(f"{postgres_url}{mark}options=-csearch_path%3Dtenant,public") as store:
        store.outbox("tenant_events")
        assert {step[:4] for step in await store.init()} >= {"0001"}
    async with await psycopg.AsyncConnection.connect(postgres_url) as pg:
        cursor = await pg.execute("SELECT to_regclass('tenant.fencehold_leases'), to_regclass('tenant.tenant_events')")
        assert None not in (await cursor.fetchone() or (None,))
