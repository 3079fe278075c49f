"""Tests that the tables of an outbox are made once, even by many clients at once, and never over other tables."""

from __future__ import annotations

import asyncio

import pytest

from fencehold.ports.events import Events, Failure, Filter
from fencehold.testing.conformance.outbox.pair import EventTests, claim, event, stray
from fencehold.testing.conformance.suite import needs, proves, refused_with, refused_without_tables, take
from fencehold.testing.harness import CALL_LIMIT_S, LEASE_TABLE, OUTBOX_TABLE, Can, Harness

CLIENTS = 6


@needs(Can.SQL)
class EventSchemas(EventTests):
    async def test_many_clients_at_once_make_the_tables_once(self, harness: Harness) -> None:
        clients = [await harness.events("billing_events", init=False) for _ in range(CLIENTS)]
        steps = await asyncio.gather(*(client.schema.init(CALL_LIMIT_S) for client in clients))
        assert sorted(map(bool, steps)) == [False] * (CLIENTS - 1) + [True]
        assert await clients[0].schema.init(CALL_LIMIT_S) == []

    async def test_outboxes_and_leases_side_by_side_know_nothing_of_each_other(self, harness: Harness) -> None:
        ours, theirs = await harness.events(), await harness.events("billing_events")
        await ours.port.add([event("ours")], CALL_LIMIT_S)
        await theirs.port.add([event("theirs")], CALL_LIMIT_S)
        assert [one.event_type for one in await claim(theirs.port, "a")] == ["theirs"]
        assert [one.event_type for one in await claim(ours.port, "a")] == ["ours"]
        await theirs.port.reap(10, CALL_LIMIT_S)
        seen = [await one.admin.stats(CALL_LIMIT_S) for one in (ours, theirs)]
        assert [one.reaper_runs for one in seen] == [0, 1]
        leases = await harness.client()
        await leases.schema.init(CALL_LIMIT_S)
        assert (await take(leases, "job", "ada")).epoch == 1

    async def test_the_script_does_the_same_as_init(self, harness: Harness) -> None:
        events = await harness.events("scripted_events", init=False)
        await harness.sql.run_script(events.schema.script())
        assert await events.schema.init(CALL_LIMIT_S) == []
        await events.port.add([event()], CALL_LIMIT_S)
        assert len(await claim(events.port, "a")) == 1

    async def test_an_outbox_dropped_by_hand_is_made_again(self, harness: Harness) -> None:
        events = await harness.events("dropped_events", init=False)
        steps = await events.schema.init(CALL_LIMIT_S)
        for tables in (["dropped_events"], [f"dropped_events{suffix}" for suffix in ("", "_reaper", "_consumed")]):
            for table in tables:
                await harness.sql.run(f"DROP TABLE {table}")
            assert await events.schema.init(CALL_LIMIT_S) == steps
            assert await events.schema.init(CALL_LIMIT_S) == []
            await events.port.add([event()], CALL_LIMIT_S)
            assert len(await claim(events.port, "a")) == 1
            await events.port.reap(10, CALL_LIMIT_S)

    async def test_a_side_table_of_somebody_else_is_left_alone(self, harness: Harness) -> None:
        await harness.sql.run("CREATE TABLE theirs_consumed (x integer)")
        events = await harness.events("theirs", init=False)
        with refused_with("table_exists"):
            await events.schema.init(CALL_LIMIT_S)

    async def test_somebody_elses_table_is_left_alone(self, harness: Harness) -> None:
        await harness.sql.run("CREATE TABLE theirs (x integer)")
        await harness.sql.run("INSERT INTO theirs VALUES (7)")
        events = await harness.events("theirs", init=False)
        for _ in range(2):
            with refused_with("table_exists", hint="another name"):
                await events.schema.init(CALL_LIMIT_S)
        assert await harness.sql.run("SELECT * FROM theirs") == [(7,)]
        await (await harness.events()).port.add([event()], CALL_LIMIT_S)
        assert await harness.sql.run("SELECT step FROM fencehold_schema WHERE component = 'theirs'") == []

    async def test_a_table_of_leases_is_no_outbox(self, harness: Harness) -> None:
        await (await harness.client()).schema.init(CALL_LIMIT_S)
        events = await harness.events(LEASE_TABLE, init=False)
        with refused_with("table_exists"):
            await events.schema.init(CALL_LIMIT_S)

    async def test_without_tables_every_verb_says_what_to_do(self, harness: Harness) -> None:
        events = await harness.events("never_made", init=False)
        port, admin = events.port, events.admin
        await refused_without_tables(
            [
                lambda: port.add([event()], CALL_LIMIT_S),
                lambda: claim(port, "a"),
                lambda: port.turn([stray()], None, CALL_LIMIT_S),
                lambda: port.renew([stray()], 60.0, CALL_LIMIT_S),
                lambda: port.fail([Failure(stray(), "no", 1.0)], CALL_LIMIT_S),
                lambda: port.release([stray()], CALL_LIMIT_S),
                lambda: port.reap(10, CALL_LIMIT_S),
                lambda: admin.stats(CALL_LIMIT_S),
                lambda: admin.find(Filter(), 10, CALL_LIMIT_S),
            ]
        )

    @proves("RULE-020-050")
    async def test_the_table_refuses_an_unknown_status_and_processing_without_a_lease(
        self, harness: Harness, events: Events
    ) -> None:
        await events.port.add([event()], CALL_LIMIT_S)
        for change in ("status = 'DONE'", "status = 'PROCESSING'", "status = NULL"):
            with pytest.raises(harness.sql.error):
                await harness.sql.run(f"UPDATE {OUTBOX_TABLE} SET {change}")
