"""A missing right ends a worker at first contact; one that is taken away later is waited for, with a warning."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import psycopg
import pytest

import fencehold
from tests.fencehold.runtime.outbox.scene import Heard, becomes, running

ROLE = "outbox_clerk"


@asynccontextmanager
async def clerk(url: str) -> AsyncIterator[tuple[Callable[[str], Any], str]]:
    """Runs the owner's statements, and the address for a role that may do all a worker does."""
    info = psycopg.conninfo.conninfo_to_dict(url)
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as pg:
        await pg.execute(f"DROP ROLE IF EXISTS {ROLE}")
        await pg.execute(f"CREATE ROLE {ROLE} LOGIN")
        async with fencehold.connect(url) as store:
            store.outbox()
            await store.init()
        await pg.execute(f"GRANT SELECT, INSERT, UPDATE ON ALL TABLES IN SCHEMA public TO {ROLE}")
        await pg.execute(f"GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO {ROLE}")
        try:
            yield lambda sql: pg.execute(sql.encode()), f"postgresql://{ROLE}@127.0.0.1:{info['port']}/{info['dbname']}"
        finally:
            await pg.execute(f"DROP OWNED BY {ROLE}")
            await pg.execute(f"DROP ROLE {ROLE}")


async def handled(event: Any) -> None:
    return None


async def test_a_worker_that_never_had_the_right_to_claim_ends_at_once(postgres_url: str) -> None:
    async with clerk(postgres_url) as (owner, url):
        await owner(f"REVOKE UPDATE ON outbox FROM {ROLE}")
        async with fencehold.connect(url, facts=Heard()) as store, asyncio.timeout(10):
            with pytest.raises(fencehold.ConfigurationError) as caught:
                await store.outbox().worker(handled).run()
        assert caught.value.code == "no_permission"


async def test_a_worker_whose_right_is_taken_away_warns_and_goes_on_when_it_has_it_again(postgres_url: str) -> None:
    async with clerk(postgres_url) as (owner, url):
        heard = Heard()
        async with fencehold.connect(url, facts=heard) as store:
            outbox = store.outbox()
            worker = outbox.worker(handled, poll_every=0.1)
            async with running(worker):
                await becomes(postgres_url, await outbox.add("a", {}), "COMPLETED")
                await owner(f"REVOKE UPDATE ON outbox FROM {ROLE}")
                told = await heard.once("worker_store_failed")
                assert "no_permission" in told["sql_error"]
                with pytest.raises(fencehold.ConfigurationError, match="no_permission"):
                    await worker.probe()  # though the role may still read
                await owner(f"GRANT UPDATE ON outbox TO {ROLE}")
                await becomes(postgres_url, await outbox.add("a", {}), "COMPLETED")
