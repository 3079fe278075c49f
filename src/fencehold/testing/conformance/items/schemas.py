"""The table of items is made once, even by many clients at once, and never over another table; tokens outlive it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import ClassVar

import pytest

from fencehold.model.items.items import ItemKey
from fencehold.ports.items import ItemPort, ItemRow, ItemStore, NewItem
from fencehold.testing.conformance.items.pair import ItemTests, row
from fencehold.testing.conformance.suite import LEASE_S, Supply, needs, refused_with, refused_without_tables
from fencehold.testing.harness import CALL_LIMIT_S, ITEM_TABLE, Can, Harness

CLIENTS = 6
HALF_A_LEASE = ("holder_id = 'ada'", "expires_at = state_timestamp", "lease_ms = 1", "token = NULL", "state = NULL")


async def unmade(harness: Harness) -> ItemStore:
    """A client of items whose table is not made yet."""
    return await harness.items(init=False)


@needs(Can.SQL)
class ItemSchemas(ItemTests):
    supplies: ClassVar[Mapping[str, Supply]] = {**ItemTests.supplies, "items": unmade}

    async def test_many_clients_at_once_make_the_table_once(self, harness: Harness) -> None:
        clients = [await harness.items(init=False) for _ in range(CLIENTS)]
        steps = await asyncio.gather(*(client.init(CALL_LIMIT_S) for client in clients))
        assert sorted(map(bool, steps)) == [False] * (CLIENTS - 1) + [True]
        assert await clients[0].init(CALL_LIMIT_S) == []

    async def test_the_script_does_the_same_as_init(self, harness: Harness, items: ItemStore) -> None:
        await harness.sql.run_script(items.script())
        assert await items.init(CALL_LIMIT_S) == []
        assert (await leased(items.port)).holder_id == "ada"

    async def test_tokens_go_on_rising_when_the_table_was_dropped_and_made_again(
        self, harness: Harness, items: ItemStore
    ) -> None:
        steps = await items.init(CALL_LIMIT_S)
        before = await leased(items.port)
        await harness.sql.run(f"DROP TABLE {ITEM_TABLE}")
        assert await items.init(CALL_LIMIT_S) == steps
        assert (await leased(items.port)).token > before.token

    async def test_somebody_elses_table_is_left_alone(self, harness: Harness, items: ItemStore) -> None:
        await harness.sql.run(f"CREATE TABLE {ITEM_TABLE} (x integer)")
        with refused_with("table_exists"):
            await items.init(CALL_LIMIT_S)
        assert await harness.sql.run(f"SELECT x FROM {ITEM_TABLE}") == []

    async def test_without_a_table_every_verb_says_what_to_do(self, items: ItemStore) -> None:
        port = items.port
        key = ItemKey("deal", "ada", 1)
        await refused_without_tables(
            [
                lambda: port.put(NewItem("deal", "NEW", "{}", "ada"), CALL_LIMIT_S),
                lambda: port.get(["deal"], CALL_LIMIT_S),
                lambda: port.acquire("deal", "ada", LEASE_S, CALL_LIMIT_S),
                lambda: port.renew([key], LEASE_S, CALL_LIMIT_S),
                lambda: port.break_leases([key], CALL_LIMIT_S),
                lambda: port.save(key, "SENT", None, CALL_LIMIT_S),
                lambda: port.delete(key, CALL_LIMIT_S),
                lambda: port.next_for_state("NEW", 9, "ada", LEASE_S, CALL_LIMIT_S),
                lambda: port.find(None, 9, CALL_LIMIT_S),
            ]
        )

    async def test_the_table_refuses_half_a_lease(self, harness: Harness, port: ItemPort) -> None:
        row(await port.put(NewItem("deal", "NEW", "{}", "ada"), CALL_LIMIT_S))
        for change in HALF_A_LEASE:
            with pytest.raises(harness.sql.error):
                await harness.sql.run(f"UPDATE {ITEM_TABLE} SET {change}")


async def leased(port: ItemPort) -> ItemRow:
    row(await port.put(NewItem("deal", "NEW", "{}", "ada"), CALL_LIMIT_S))
    return row(await port.acquire("deal", "ada", LEASE_S, CALL_LIMIT_S))
