"""Whole instances on a real database, with the fake gateway: what a client sees from outside."""

import asyncio
import contextlib
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

import fencehold
from fencehold.backends.sql.statements import Statements
from fencehold.model.errors import ConfigurationError
from submission_manager import instance as instances
from submission_manager.fake_gateway import FakeGateway
from submission_manager.http.server import Listening
from submission_manager.instance import Instance
from submission_manager.registry.registry import parse
from submission_manager.settings import settings
from submission_manager.stores.opening import LEASE_TABLE, Store, open_store
from tests.submission_manager.http.parts import REGISTRY, Facts, until

SMS = {"referenceId": "r", "to": "1", "message": "hello"}


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue(f"{request.param}_url"))


@asynccontextmanager
async def gateway() -> AsyncIterator[tuple[str, FakeGateway]]:
    app = FakeGateway()
    server = Listening(app, "127.0.0.1", 0, request_timeout_s=5, drain_timeout_s=1)
    await server.start()
    try:
        yield f"http://127.0.0.1:{server.port}", app
    finally:
        await server.stop()


def instance(database: str, gateway_url: str, name: str, facts: Facts | None = None, **given: Any) -> Instance:
    registry = parse(REGISTRY.replace("http://gateway.test", gateway_url))
    chosen = {"database": database, "registry": "-", "port": 0, "holder_id": name, "drain_timeout": "2s", **given}
    return Instance(settings(chosen), registry, facts or Facts())


async def client_of(one: Instance) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=one.url, trust_env=False, verify=False, timeout=30)


async def submit(one: Instance, intent_id: str, query: str = "?waitSeconds=20", **payload: Any) -> dict[str, Any]:
    body = {"intentId": intent_id, "submissionTarget": "sms.realtime", "payload": SMS | payload}
    async with await client_of(one) as client:
        answer = await client.post(f"/v1/intents{query}", json=body)
        assert answer.status_code == 200, answer.text
        return dict(answer.json())


async def read(one: Instance, path: str) -> httpx.Response:
    async with await client_of(one) as client:
        return await client.get(path)


async def test_an_intent_submitted_to_either_instance_is_executed_by_the_leader(database):
    async with gateway() as (url, calls), instance(database, url, "sm-1") as leader:
        await until(lambda: leader.leader.is_leader)
        async with instance(database, url, "sm-2") as follower:
            answers = await asyncio.gather(
                submit(leader, "here"), submit(follower, "there"), submit(follower, "bad", to="Anna")
            )
            assert [answer["status"] for answer in answers] == ["accepted", "accepted", "pending"]
            history = (await read(follower, "/v1/intents/there/history")).json()
            assert [attempt["outcomeStatus"] for attempt in history["attempts"]] == ["accepted"]
            assert calls.calls.by_key == {"here/1": 1, "there/1": 1, "bad/1": 1}
            assert (await read(leader, "/leaderz")).status_code == 200
            assert (await read(follower, "/leaderz")).status_code == 503
            for one, mode in ((leader, "leader"), (follower, "follower")):
                ready = await read(one, "/readyz")
                assert (ready.status_code, ready.text.split()[0]) == (200, f"mode={mode}")


async def test_a_stopped_leader_gives_its_lease_back_and_the_next_one_goes_on(database):
    facts = Facts()
    async with gateway() as (url, _), instance(database, url, "sm-1", facts) as first:
        await until(lambda: first.leader.is_leader)
        async with instance(database, url, "sm-2", acquire_interval="30s") as second:
            await first.__aexit__(None, None, None)
            await until(lambda: second.leader.is_leader)
            assert (await submit(second, "after"))["status"] == "accepted"
            async with fencehold.connect(database, table=LEASE_TABLE) as store:
                lease = await store.leases.read("submission-manager-executor")
            assert lease is not None
            assert (lease.holder_id, lease.epoch) == ("sm-2", 2)
    order = ["leader_acquired", "draining", "leader_released", "stopped"]
    assert [event for event, _ in facts.told if event in order] == order


async def test_that_it_has_stopped_is_the_last_that_is_told(sqlite_url, monkeypatch):
    facts = Facts()

    def opened(*arguments: Any) -> Store:
        store = open_store(*arguments)
        close = store.close

        async def told() -> None:
            await close()
            facts.fact("store_closed")

        store.close = told  # type: ignore[method-assign]
        return store

    monkeypatch.setattr(instances, "open_store", opened)
    async with gateway() as (url, _), instance(sqlite_url, url, "sm-1", facts):
        pass
    assert [event for event, _ in facts.told][-2:] == ["store_closed", "stopped"]


async def test_a_start_that_fails_is_not_told_as_a_stop(sqlite_url):
    facts = Facts()
    chosen = settings({"database": sqlite_url, "registry": "-", "port": 0})
    with pytest.raises(ConfigurationError):
        await Instance(chosen, parse(REGISTRY), facts, creates_tables=False).__aenter__()
    assert "stopped" not in [event for event, _ in facts.told]


async def test_without_tables_and_without_leave_to_create_them_it_does_not_start(database):
    chosen = settings({"database": database, "registry": "-", "port": 0})
    with pytest.raises(ConfigurationError) as caught:
        await Instance(chosen, parse(REGISTRY), Facts(), creates_tables=False).__aenter__()
    assert caught.value.code == "schema_missing"


async def test_a_lease_table_of_an_older_version_is_upgraded_or_without_leave_to_is_named(sqlite_url):
    statements = Statements("fencehold.backends.sqlite", LEASE_TABLE)
    async with gateway() as (url, _), instance(sqlite_url, url, "sm-1"):
        pass
    with contextlib.closing(sqlite3.connect(sqlite_url.removeprefix("sqlite:///"), isolation_level=None)) as file:
        file.execute(f"DROP TRIGGER {LEASE_TABLE}_has_id")
        file.execute(f"ALTER TABLE {LEASE_TABLE} DROP COLUMN lease_id")
        file.execute("DELETE FROM fencehold_schema WHERE step = ?", [statements.steps[1].name])
    chosen = settings({"database": sqlite_url, "registry": "-", "port": 0})
    with pytest.raises(ConfigurationError) as caught:
        await Instance(chosen, parse(REGISTRY), Facts(), creates_tables=False).__aenter__()
    assert (caught.value.code, f"{LEASE_TABLE}.lease_id" in caught.value.message) == ("schema_missing", True)
    async with gateway() as (url, _), instance(sqlite_url, url, "sm-1") as one:
        await until(lambda: one.leader.is_leader)


async def test_each_gateway_of_the_registry_is_counted_from_0_on(sqlite_url):
    async with gateway() as (url, _), instance(sqlite_url, url, "sm-1") as one:
        series = f'submission_gateway_attempts_total{{gateway="{url}",outcome="accepted"}}'
        assert f"{series} 0.0" in (await read(one, "/metrics")).text
        await submit(one, "x")
        await until(lambda: f"{series} 1.0" in one.metrics.exposition()[0].decode())  # raised just after the commit
        assert f'submission_gateway_call_seconds_count{{gateway="{url}"}} 1.0' in (await read(one, "/metrics")).text


async def test_a_port_that_is_taken_is_told_before_anything_is_led(sqlite_url):
    facts = Facts()
    async with gateway() as (url, _), instance(sqlite_url, url, "sm-1") as one:
        with pytest.raises(ConfigurationError) as caught:
            await instance(sqlite_url, url, "sm-2", facts, port=one.listening.port).__aenter__()
        assert caught.value.code == "bad_port"
        assert [event for event, _ in facts.told if event.startswith("leader")] == []
