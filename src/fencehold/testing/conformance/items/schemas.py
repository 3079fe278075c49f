"""Tests that the table of items is made once, even by many clients at once, and never over another table.

An item's tokens go on rising when the table is made again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import ClassVar

import pytest

from fencehold.model.items.rules import ItemKey
from fencehold.ports.items import ItemRow, ItemStore, NewItem
from fencehold.testing.conformance.items.pair import ItemTests, row
from fencehold.testing.conformance.suite import LEASE_S, Supply, needs, refused_with, refused_without_tables
from fencehold.testing.harness import CALL_LIMIT_S, ITEM_TABLE, Can, Harness

CLIENTS = 6
HALF_A_LEASE = ("holder_id = 'ada'", "expires_at = state_timestamp", "lease_ms = 1", "token = NULL", "state = NULL")


async def unmade(harness: Harness) -> ItemStore:
    """Return a client of items whose table is not made yet."""
    return await harness.items(init=False)


@needs(Can.SQL)
class ItemSchemas(ItemTests):
    supplies: ClassVar[Mapping[str, Supply]] = {**ItemTests.supplies, "items": unmade}

    async def test_many_clients_at_once_make_the_table_once(self, harness: Harness) -> None:
        clients = [await harness.items(init=False) for _ in range(CLIENTS)]
        steps = await asyncio.gather(*(client.schema.init(CALL_LIMIT_S) for client in clients))
        assert sorted(map(bool, steps)) == [False] * (CLIENTS - 1) + [True]
        assert await clients[0].schema.init(CALL_LIMIT_S) == []

    async def test_the_script_does_the_same_as_init(self, harness: Harness, items: ItemStore) -> None:
        await harness.sql.run_script(items.schema.script())
        assert await items.schema.init(CALL_LIMIT_S) == []
        assert (await leased(items)).holder_id == "ada"

    async def test_tokens_go_on_rising_when_the_table_was_dropped_and_made_again(
        self, harness: Harness, items: ItemStore
    ) -> None:
        steps = await items.schema.init(CALL_LIMIT_S)
        before = await leased(items)
        await harness.sql.run(f"DROP TABLE {ITEM_TABLE}")
        assert await items.schema.init(CALL_LIMIT_S) == steps
        assert (await leased(items)).token > before.token

    async def test_somebody_elses_table_is_left_alone(self, harness: Harness, items: ItemStore) -> None:
        await harness.sql.run(f"CREATE TABLE {ITEM_TABLE} (x integer)")
        with refused_with("table_exists"):
            await items.schema.init(CALL_LIMIT_S)
        assert await harness.sql.run(f"SELECT x FROM {ITEM_TABLE}") == []

    async def test_without_a_table_every_verb_says_what_to_do(self, harness: Harness, items: ItemStore) -> None:
        key = ItemKey("deal", "ada", 1)
        await refused_without_tables(
            [
                lambda: items.port.put(NewItem("deal", "NEW", "{}", "ada"), CALL_LIMIT_S),
                lambda: items.port.get(["deal"], CALL_LIMIT_S),
                lambda: items.leases.acquire("deal", "ada", LEASE_S, CALL_LIMIT_S),
                lambda: items.leases.renew([key], LEASE_S, CALL_LIMIT_S),
                lambda: items.leases.break_leases([key], CALL_LIMIT_S),
                lambda: items.port.save(key, "SENT", None, CALL_LIMIT_S),
                lambda: items.port.delete(key, CALL_LIMIT_S),
                lambda: items.leases.next_for_state("NEW", 9, "ada", LEASE_S, CALL_LIMIT_S),
                lambda: items.admin.find(None, 9, CALL_LIMIT_S),
            ]
        )

    async def test_the_table_refuses_half_a_lease(self, harness: Harness, one: ItemStore) -> None:
        row(await one.port.put(NewItem("deal", "NEW", "{}", "ada"), CALL_LIMIT_S))
        for change in HALF_A_LEASE:
            with pytest.raises(harness.sql.error):
                await harness.sql.run(f"UPDATE {ITEM_TABLE} SET {change}")


async def leased(items: ItemStore) -> ItemRow:
    row(await items.port.put(NewItem("deal", "NEW", "{}", "ada"), CALL_LIMIT_S))
    return row(await items.leases.acquire("deal", "ada", LEASE_S, CALL_LIMIT_S))
