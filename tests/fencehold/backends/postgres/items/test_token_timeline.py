"""Tokens of items rise over a promotion that took their sequence back, for whoever is granted one at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest

import fencehold
from fencehold.model.election.places import TOKEN_JUMP, Place, decide
from tests.fencehold.backends.postgres.places import HERE, run
from tests.servers.roles import Role

FORGED = "UPDATE fencehold_items_place SET timeline = %s, system_identifier = %s"
KEPT = "SELECT timeline, system_identifier FROM fencehold_items_place"
CROWD = 8


@pytest.fixture
def clerk(postgres_url: str) -> Iterator[Role]:
    role = Role(postgres_url, "item_clerk")
    yield role
    role.drop()


@asynccontextmanager
async def items_at(url: str) -> AsyncIterator[fencehold.Items]:
    async with fencehold.connect(url) as store:
        items = store.items("deal")
        await store.init()
        await items.put("7", state="NEW", document={})
        yield items


def here(url: str) -> Place:
    [(timeline, system)] = run(url, HERE)
    return Place(timeline, system)  # type: ignore[arg-type]


def forge(url: str, last: Place) -> None:
    """As if the last token had been given out there, by a server whose sequence we do not have."""
    run(url, FORGED, last.timeline, last.system)


async def token(items: fencehold.Items) -> int:
    item = await items.acquire("7")
    assert item._lease is not None
    found = item._lease.key.token
    await items.break_lease(item)
    return found


async def test_a_token_jumps_by_the_rules_of_the_epochs(every_postgres_url: str) -> None:
    async with items_at(every_postgres_url) as items:
        now = here(every_postgres_url)
        assert now.timeline is not None
        before = await token(items)
        for timeline in (None, now.timeline, now.timeline - 1, now.timeline + 1, now.timeline - 5):
            for system in (None, now.system, 4711):
                last = Place(timeline, system)
                forge(every_postgres_url, last)
                after, jump = await token(items), TOKEN_JUMP * decide(last, now).jumps(last, now)
                assert before + jump < after <= before + jump + 4, last
                assert run(every_postgres_url, KEPT) == [(now.timeline, now.system)]
                before = after


async def test_the_sequence_jumps_once_and_then_counts_on(postgres_url: str) -> None:
    async with items_at(postgres_url) as items:
        forge(postgres_url, Place(-1, None))
        first = await token(items)
        assert [await token(items) for _ in range(3)] == [first + 1, first + 2, first + 3]


async def test_an_item_that_is_deleted_and_put_again_gets_a_higher_token(postgres_url: str) -> None:
    async with items_at(postgres_url) as items:
        before = await items.acquire("7")
        await items.delete(before)
        run(postgres_url, "SELECT setval('fencehold_items_token', 1)")  # as a standby that has not seen these tokens
        forge(postgres_url, Place(0, None))
        await items.put("7", state="NEW", document={})
        assert before._lease is not None
        assert await token(items) > before._lease.key.token + TOKEN_JUMP // 2


async def test_of_many_grants_at_once_after_a_promotion_all_are_above_what_was_lost(postgres_url: str) -> None:
    async with items_at(postgres_url) as items:
        for number in range(CROWD):
            await items.put(f"n{number}", state="DUE", document={})
        forge(postgres_url, Place(0, None))
        stores = [fencehold.connect(postgres_url) for _ in range(CROWD)]
        try:
            for store in stores:
                await store.open()
            kinds = [store.items("deal") for store in stores]
            taken = await asyncio.gather(*(kind.acquire(f"n{number}") for number, kind in enumerate(kinds)))
        finally:
            for store in stores:
                await store.close()
        tokens = [item._lease.key.token for item in taken]
        assert len(set(tokens)) == CROWD
        assert TOKEN_JUMP < min(tokens) <= max(tokens) < 2 * TOKEN_JUMP, "one of them moved the sequence, once"


async def test_who_drew_a_token_before_the_sequence_was_moved_draws_again(postgres_url: str) -> None:
    async with items_at(postgres_url) as items:
        await token(items)
        run(postgres_url, "UPDATE fencehold_items_place SET floor = 1000")
        run(postgres_url, "SELECT setval('fencehold_items_token', 1000)")
        run(postgres_url, "UPDATE fencehold_items SET token = 5, holder_id = 'x', leased_at = now(), lease_ms = 1,"
            " expires_at = now()")  # fmt: skip
        assert run(postgres_url, "SELECT token FROM fencehold_items") == [(1001,)]


async def test_a_role_with_the_rights_of_before_is_granted_tokens_after_a_promotion(clerk: Role) -> None:
    """It may neither set the sequence nor write where tokens were given out; what it cannot read the owner can."""
    async with items_at(clerk.owner_url):
        clerk.owner_says("GRANT SELECT, INSERT, UPDATE, DELETE ON fencehold_items TO {}")
        clerk.owner_says("GRANT USAGE ON SEQUENCE fencehold_items_token TO {}")
        forge(clerk.owner_url, Place(0, None))
    run(clerk.owner_url, "REVOKE EXECUTE ON FUNCTION pg_walfile_name(pg_lsn) FROM public")
    async with fencehold.connect(clerk.url) as store:
        assert await token(store.items("deal")) > TOKEN_JUMP


async def test_tables_of_the_callers_own_with_the_same_names_are_not_touched(clerk: Role) -> None:
    async with items_at(clerk.owner_url):
        clerk.owner_says("GRANT SELECT, INSERT, UPDATE, DELETE ON fencehold_items TO {}")
        clerk.owner_says("GRANT USAGE ON SEQUENCE fencehold_items_token TO {}")
        forge(clerk.owner_url, Place(0, None))
    run(
        clerk.url,
        "CREATE TEMP TABLE fencehold_items_place (timeline bigint, system_identifier bigint, floor bigint);"
        " UPDATE fencehold_items SET token = nextval('fencehold_items_token')",
    )
    assert run(clerk.owner_url, "SELECT timeline FROM fencehold_items_place") == [(here(clerk.owner_url).timeline,)]


async def test_the_trigger_that_lifts_tokens_is_missed(postgres_url: str) -> None:
    async with fencehold.connect(postgres_url) as store:
        store.items("deal")
        await store.init()
        run(postgres_url, "ALTER TABLE fencehold_items DISABLE TRIGGER fencehold_items_token_lifted")
        with pytest.raises(fencehold.ConfigurationError) as caught:
            await store.init()
        assert caught.value.code == "safeguard_lost"
        assert "trigger fencehold_items_token_lifted" in caught.value.message
