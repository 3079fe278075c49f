"""A whole instance on PostgreSQL, while somebody keeps one row of its tables locked."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import psycopg

from submission_manager.stores.opening import LEASE_TABLE
from tests.submission_manager.http.parts import Facts, until
from tests.submission_manager.instance.test_instance import gateway, instance, submit

ROW = "SELECT 1 FROM submission_intents WHERE intent_id = 'x0' FOR UPDATE"
HELD = 3


@contextlib.asynccontextmanager
async def locked(url: str, statement: str) -> AsyncIterator[None]:
    async with await psycopg.AsyncConnection.connect(url) as other:
        await other.execute(statement.encode())
        yield
        await other.rollback()


def told(facts: Facts, event: str) -> list[dict[str, Any]]:
    return [fields for name, fields in facts.told if name == event]


async def test_a_row_that_is_locked_when_its_call_ends_costs_neither_the_term_nor_a_second_message(
    postgres_url, monkeypatch
):
    facts = Facts()
    async with gateway() as (url, app), instance(postgres_url, url, "sm-1", facts) as one:
        await until(lambda: one.leader.is_leader)
        answers = asyncio.Event()
        monkeypatch.setattr(app, "_delay", answers.wait)
        slow = [asyncio.ensure_future(submit(one, f"x{number}")) for number in range(HELD)]
        await until(lambda: app.calls.by_key.total() == HELD)
        async with locked(postgres_url, ROW):
            answers.set()
            await until(lambda: bool(told(facts, "intent_parked")))
            assert [(await each)["status"] for each in slow[1:]] == ["accepted"] * (HELD - 1)
            assert (await submit(one, "after"))["status"] == "accepted"
        assert (await slow[0])["status"] == "accepted"
        assert app.calls.by_key == {"after/1": 1} | {f"x{number}/1": 1 for number in range(HELD)}
    assert told(facts, "leader_lost") == told(facts, "executor_sql_error") == []
    assert {(fields["intent_id"], fields["write"]) for fields in told(facts, "intent_parked")} == {("x0", "record")}


async def test_a_lock_on_the_leases_row_is_named_and_does_not_flood_the_log(postgres_url):
    facts = Facts()
    times = {"lease_duration": "2s", "renew_interval": "500ms", "acquire_interval": "500ms"}
    async with gateway() as (url, _), instance(postgres_url, url, "sm-1", facts, **times) as one:
        await until(lambda: one.leader.is_leader)
        async with locked(postgres_url, f"SELECT 1 FROM {LEASE_TABLE} FOR UPDATE"):
            await until(lambda: bool(told(facts, "lease_row_locked")))
            await until(lambda: len(told(facts, "leader_acquire_failed")) > 5)
        await until(lambda: one.leader.is_leader)
    assert [fields["reason"] for fields in told(facts, "leader_lost")] == ["deadline_passed"]
    assert sum(not fields.get("is_repeat") for fields in told(facts, "leader_acquire_failed")) <= 2
