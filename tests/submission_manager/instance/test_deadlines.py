"""Deadlines by a whole instance on a real database: a gateway that hangs, 8,000 before 20, a backlog with a limit."""

import asyncio
import datetime as dt
import json
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from submission_manager.fake_gateway import Behaviour, FakeGateway
from submission_manager.http.server import Listening
from submission_manager.instance import Instance
from submission_manager.model.intents import NewIntent
from submission_manager.registry.registry import Registry, parse
from submission_manager.settings import settings
from submission_manager.stores.opening import open_store
from tests.submission_manager.http.parts import Facts, until

LIMIT_S = 60.0
DEADLINE_S = 20


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue(f"{request.param}_url"))


def target(name: str, **fields: Any) -> dict[str, Any]:
    base = {"submissionTarget": name, "gatewayType": "sms", "terminalOutcomes": ["invalid_request"]}
    policy = {"policy": "deadline", "maxAcceptanceSeconds": DEADLINE_S}
    return base | (fields if "policy" in fields else policy | fields)


class GatedGateway(FakeGateway):
    """Answers nobody before the gate is open."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = asyncio.Event()

    async def _delay(self) -> None:
        await self.gate.wait()


class Service:
    """One leader, its gateway, and a client."""

    def __init__(self, instance: Instance, registry: Registry, gateway: FakeGateway, client: httpx.AsyncClient) -> None:
        self.instance, self.registry, self.gateway, self.client = instance, registry, gateway, client

    async def submit(self, name: str, to: str, wait_s: int = 0) -> httpx.Response:
        payload = {"referenceId": name, "to": "1", "message": "hello"}
        body = {"intentId": name, "submissionTarget": to, "payload": payload}
        return await self.client.post(f"/v1/intents?waitSeconds={wait_s}", json=body)

    async def store(self, names: Iterable[str], to: str) -> None:
        """Past the HTTP face: many at once."""
        contract = self.registry.contracts[to]
        payload = json.dumps({"referenceId": "r", "to": "1", "message": "hello"}).encode()
        store = open_store(self.instance.settings.database)
        try:
            await asyncio.gather(*(store.intake.submit(NewIntent(name, payload, contract), LIMIT_S) for name in names))
        finally:
            await store.close()


@asynccontextmanager
async def service(
    database: str, gateway: FakeGateway, *targets: dict[str, Any], **given: Any
) -> AsyncIterator[Service]:
    server = Listening(gateway, "127.0.0.1", 0, request_timeout_s=5, drain_timeout_s=1)
    await server.start()
    try:
        url = f"http://127.0.0.1:{server.port}"
        registry = parse(json.dumps({"targets": [one | {"gatewayUrl": url} for one in targets]}))
        chosen = {"database": database, "registry": "-", "port": 0, "drain_timeout": "200ms", **given}
        async with Instance(settings(chosen), registry, Facts()) as one:
            await until(lambda: one.leader.is_leader)
            async with httpx.AsyncClient(base_url=one.url, trust_env=False, timeout=LIMIT_S) as client:
                yield Service(one, registry, gateway, client)
    finally:
        await server.stop()


def seconds(intent: dict[str, Any]) -> float:
    """From created to completed."""
    created, completed = (dt.datetime.fromisoformat(intent[name]) for name in ("createdAt", "completedAt"))
    return (completed - created).total_seconds()


async def test_a_deadline_passes_on_time_while_the_gateway_hangs_and_its_lane_is_full(database):
    bulk, urgent = target("bulk"), target("urgent", maxAcceptanceSeconds=1)
    async with service(database, GatedGateway(), bulk, urgent, concurrency=2, gateway_timeout="60s") as at:
        await asyncio.gather(*(at.submit(f"hang{n}", "bulk") for n in range(2)))
        await until(lambda: at.gateway.calls.by_key.total() == 2)
        answers = await asyncio.gather(*(at.submit(f"u{n}", "urgent", wait_s=28) for n in range(10)))
        ends = [answer.json() for answer in answers]
        assert {(end["status"], end.get("exhaustedReason")) for end in ends} == {("exhausted", "deadline_exceeded")}
        assert all(1 <= seconds(end) < 20 for end in ends), "long before the calls under way give up"
        assert at.gateway.calls.by_key.total() == 2


async def test_urgent_intents_go_before_the_bulk_that_waits_at_their_gateway(database):
    bulk = target("bulk", policy="one_shot")
    slow = FakeGateway(Behaviour(delay_min_s=0.1, delay_max_s=0.1))
    async with service(database, slow, bulk, target("urgent"), concurrency=2) as at:
        await at.store((f"bulk{n}" for n in range(500)), "bulk")
        await until(lambda: at.gateway.calls.by_key.total() >= 2)
        answers = await asyncio.gather(*(at.submit(f"u{n}", "urgent", wait_s=28) for n in range(10)))
        assert [answer.json()["status"] for answer in answers] == ["accepted"] * 10
        assert at.gateway.calls.by_key.total() < 400


async def test_a_target_with_a_priority_in_the_registry_goes_before_the_others_of_its_gateway(database):
    bulk, vip = target("bulk", maxAcceptanceSeconds=600), target("vip", maxAcceptanceSeconds=86_400, priority=3)
    gateway = GatedGateway()
    async with service(database, gateway, bulk, vip, concurrency=1, gateway_timeout="60s") as at:
        await at.submit("first", "bulk")
        await until(lambda: gateway.calls.by_key.total() == 1)
        for name in ("second", "third", "urgent"):
            await at.submit(name, "vip" if name == "urgent" else "bulk")
        await until(lambda: b"submission_queue_depth 3.0" in at.instance.metrics.exposition()[0])
        gateway.gate.set()
        await until(lambda: gateway.calls.by_key.total() == 4)
        assert list(gateway.calls.by_key) == ["first/1", "urgent/1", "second/1", "third/1"]


async def test_what_has_no_deadline_has_its_turn_by_the_virtual_one_of_the_settings(database):
    dated, undated, gateway = target("dated", maxAcceptanceSeconds=50), target("any", policy="one_shot"), GatedGateway()
    given = {"concurrency": 1, "gateway_timeout": "60s", "virtual_deadline": "1s"}
    async with service(database, gateway, dated, undated, **given) as at:
        await at.submit("first", "dated")
        await until(lambda: gateway.calls.by_key.total() == 1)
        await at.submit("patient", "any")
        for n in range(4):
            await at.submit(f"dated{n}", "dated")
        await until(lambda: b"submission_queue_depth 5.0" in at.instance.metrics.exposition()[0])
        gateway.gate.set()
        await until(lambda: gateway.calls.by_key.total() == 6)
        assert list(gateway.calls.by_key)[-1] == "dated3/1", "beyond one of four it waits, behind them all it does not"


async def test_a_target_beyond_its_backlog_is_refused_until_it_has_room_again(database):
    limited, gateway = target("limited", policy="one_shot", maxBacklog=3), GatedGateway()
    async with service(database, gateway, limited, concurrency=1, gateway_timeout="60s") as at:
        for n in range(3):
            assert (await at.submit(f"i{n}", "limited")).status_code == 200
        await until(lambda: at.instance.app.admission.most("limited") == 3)
        refused = await at.submit("new", "limited")
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "5")
        assert (await at.submit("i0", "limited")).status_code == 200
        assert (await at.client.get("/v1/intents/new")).status_code == 404
        gateway.gate.set()
        await until(lambda: at.instance.app.admission.most("limited") is None)
        assert (await at.submit("new", "limited")).status_code == 200


@pytest.mark.long
@pytest.mark.limit(180)
async def test_behind_8000_bulk_intents_20_urgent_ones_are_all_accepted_within_their_20_seconds(postgres_url):
    bulk = target("bulk", policy="max_attempts", maxAttempts=3)
    slow = FakeGateway(Behaviour(delay_min_s=0.3, delay_max_s=0.3))
    async with service(postgres_url, slow, bulk, target("urgent")) as at:
        await at.store((f"bulk{n}" for n in range(8_000)), "bulk")
        await until(lambda: at.gateway.calls.by_key.total() >= 100)
        await asyncio.gather(*(at.submit(f"u{n}", "urgent") for n in range(20)))
        answers = await asyncio.gather(*(at.submit(f"u{n}", "urgent", wait_s=28) for n in range(20)))
        ends = [(await at.client.get(f"/v1/intents/{answer.json()['intentId']}")).json() for answer in answers]
        assert [end["status"] for end in ends] == ["accepted"] * 20
        assert max(seconds(end) for end in ends) < DEADLINE_S
        assert at.gateway.calls.by_key.total() < 7_000


@pytest.mark.long
@pytest.mark.limit(180)
async def test_8000_intents_whose_deadline_passes_at_once_end_within_seconds_of_it(postgres_url):
    late = target("late", maxAcceptanceSeconds=15)
    async with service(postgres_url, GatedGateway(), late, concurrency=1, gateway_timeout="60s") as at:
        await at.submit("hang", "late")
        await until(lambda: at.gateway.calls.by_key.total() == 1)
        await at.store((f"late{n}" for n in range(8_000)), "late")
        counted = at.instance.metrics._exhausted.labels("deadline_exceeded")
        await until(lambda: counted._value.get() == 8_000)
        answer = (await at.client.get("/v1/intents/late7999")).json()
        assert seconds(answer) < 15 + 20
