"""A table of the outbox's name that comes first in the caller's search_path: no worker reads it; nothing goes there."""

import uuid

import psycopg
import pytest

import fencehold

EVENT = uuid.uuid4()
SHADOWS = {
    "another schema": "CREATE SCHEMA app; SET search_path = app, public; CREATE TABLE {shadow}",
    "a temporary table": "CREATE TEMP TABLE {shadow}",
}


@pytest.mark.parametrize("shadow", SHADOWS)
async def test_an_event_does_not_go_into_a_table_that_hides_the_outbox(postgres_url: str, shadow: str) -> None:
    async with fencehold.connect(postgres_url) as store, await psycopg.AsyncConnection.connect(postgres_url) as mine:
        outbox = store.outbox()
        await store.init()
        await mine.execute(SHADOWS[shadow].format(shadow="outbox (LIKE public.outbox INCLUDING ALL)").encode())
        with pytest.raises(fencehold.ConfigurationError) as caught:
            await outbox.add("a", 1, tx=mine)
        assert caught.value.code == "wrong_store"
        assert await (await mine.execute("SELECT count(*) FROM outbox")).fetchone() == (0,)
        await mine.execute("SET search_path = public, pg_temp")
        await outbox.add("a", 1, tx=mine)
        await mine.commit()
        assert (await outbox.stats()).pending == 1


@pytest.mark.parametrize("shadow", SHADOWS)
async def test_nor_does_what_was_met_for_the_first_time(postgres_url: str, shadow: str) -> None:
    async with fencehold.connect(postgres_url) as store, await psycopg.AsyncConnection.connect(postgres_url) as mine:
        outbox = store.outbox()
        await store.init()
        await mine.execute(
            SHADOWS[shadow].format(shadow="outbox_consumed (LIKE public.outbox_consumed INCLUDING ALL)").encode()
        )
        with pytest.raises(fencehold.ConfigurationError) as caught:
            await outbox.first_time(EVENT, "mail", tx=mine)
        assert caught.value.code == "wrong_store"


async def test_an_outbox_in_a_schema_of_its_own_is_found_whatever_the_search_path(postgres_url: str) -> None:
    async with fencehold.connect(postgres_url) as store, await psycopg.AsyncConnection.connect(postgres_url) as mine:
        await mine.execute("CREATE SCHEMA app")
        await mine.commit()
        outbox = store.outbox("app.outbox")
        await store.init()
        await mine.execute("CREATE TEMP TABLE outbox (a int)")
        await outbox.add("a", 1, tx=mine)
        assert await outbox.first_time(EVENT, "mail", tx=mine)
        await mine.commit()
        assert (await outbox.stats()).pending == 1
