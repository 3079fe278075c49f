"""Tests that tables are made once, even by many clients at once, beside the tables of others.

The tables themselves keep an epoch from falling.
"""

from __future__ import annotations

import asyncio

import pytest

from fencehold.model.election.rules import TermKey
from fencehold.ports.backend import Backend
from fencehold.testing.conformance.leases.fences import is_let_in
from fencehold.testing.conformance.suite import (
    LeaseTests,
    granted,
    needs,
    refused_with,
    refused_without_tables,
    release,
    renew,
    row,
    take,
)
from fencehold.testing.harness import CALL_LIMIT_S, LEASE_TABLE, Can, Harness

SERVICE_TABLE = "submission_manager_leases"
CLIENTS = 8


@needs(Can.SQL)
class Schemas(LeaseTests):
    async def test_a_second_init_has_nothing_to_do(self, backend: Backend, key: TermKey) -> None:
        assert await backend.schema.init(CALL_LIMIT_S) == []
        granted(await renew(backend, key))

    async def test_many_clients_at_once_make_the_tables_once(self, harness: Harness) -> None:
        clients = [await harness.client(SERVICE_TABLE) for _ in range(CLIENTS)]
        steps = await asyncio.gather(*(client.schema.init(CALL_LIMIT_S) for client in clients))
        assert sorted(map(bool, steps)) == [False] * (CLIENTS - 1) + [True]
        for epoch, client in enumerate(clients, start=1):
            key = await take(client, "job", "ada", nonce=f"turn {epoch}")
            assert key.epoch == epoch
            await release(client, key)

    async def test_two_tables_side_by_side_know_nothing_of_each_other(self, harness: Harness) -> None:
        ours, theirs = await harness.client(), await harness.client(SERVICE_TABLE)
        assert await theirs.schema.init(CALL_LIMIT_S) != []
        a, b = await take(ours, "job", "ada"), await take(theirs, "job", "bob")
        assert (a.epoch, b.epoch) == (1, 1)
        await is_let_in(harness, theirs, b)
        assert [lease.holder_id for lease in await ours.leases.list("", CALL_LIMIT_S)] == ["ada"]
        assert [lease.holder_id for lease in await theirs.leases.list("", CALL_LIMIT_S)] == ["bob"]

    async def test_without_tables_every_verb_says_what_to_do(self, harness: Harness) -> None:
        backend = await harness.client("never_made")
        await refused_without_tables(
            [
                lambda: take(backend, "job", "ada"),
                lambda: row(backend, "job"),
                lambda: backend.leases.renew([TermKey("job", "ada", 1, 60.0)], CALL_LIMIT_S),
                lambda: backend.leases.release([TermKey("job", "ada", 1, 60.0)], CALL_LIMIT_S),
                lambda: backend.leases.list("", CALL_LIMIT_S),
                lambda: backend.leases.ask_step_down("job", 1, CALL_LIMIT_S),
            ]
        )

    async def test_the_script_does_the_same_as_init(self, harness: Harness) -> None:
        backend = await harness.client("scripted_leases")
        await harness.sql.run_script(backend.schema.script())
        assert await backend.schema.init(CALL_LIMIT_S) == []
        key = await take(backend, "job", "ada")
        granted(await renew(backend, key))
        with pytest.raises(harness.sql.error):
            await harness.sql.run("DELETE FROM scripted_leases")

    async def test_a_table_dropped_by_hand_is_not_made_again_in_silence(self, harness: Harness) -> None:
        backend = await harness.client("dropped_leases")
        steps = await backend.schema.init(CALL_LIMIT_S)
        await harness.sql.run("DROP TABLE dropped_leases")
        for _ in range(2):
            with refused_with("table_lost", hint="backup"):
                await backend.schema.init(CALL_LIMIT_S)
        await harness.sql.run("DELETE FROM fencehold_schema WHERE component = 'dropped_leases'")
        if "CREATE FUNCTION" in backend.schema.script():
            await harness.sql.run("DROP FUNCTION dropped_leases_guard")
        assert await backend.schema.init(CALL_LIMIT_S) == steps

    async def test_the_table_refuses_a_falling_epoch_and_a_deleted_row(
        self, harness: Harness, backend: Backend
    ) -> None:
        for turn in range(3):
            await release(backend, await take(backend, "job", "ada", nonce=f"turn {turn}"))
        for statement in (
            f"UPDATE {LEASE_TABLE} SET lease_epoch = lease_epoch - 1",
            f"UPDATE {LEASE_TABLE} SET lease_epoch = 1",
            f"DELETE FROM {LEASE_TABLE}",
        ):
            with pytest.raises(harness.sql.error):
                await harness.sql.run(statement)
        assert (await row(backend, "job")).epoch == 3
