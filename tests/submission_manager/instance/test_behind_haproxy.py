"""The whole service behind the real HAProxy while its leaders die and freeze and its database crashes.

What is asserted at the end is a verdict over three accounts that know nothing of each other: the clients' (what was
acknowledged), the database's with a witness in it (every grant, start and record, and the lease each of them met), and
the gateway's (every call with its Idempotency-Key).
"""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from tests.servers.postgres import PostgresServer
from tests.submission_manager.demo.scene import Scene, a_scene, intent
from tests.submission_manager.instance import fleet
from tests.submission_manager.service_url import service_url

SQL_SERVER_SETTINGS = {**fleet.SQL_SERVER_SETTINGS, "SM_GATEWAY_TIMEOUT": "2s"}

NO_FAULTS = {
    "intents_lost": 0,
    "starts_under_an_old_epoch": 0,
    "records_under_an_old_epoch": 0,
    "attempts_without_start": 0,
    "calls_without_start": 0,
    "calls_repeated": 0,
    "intents_called_too_often": 0,
}


@pytest.fixture
def url(request: pytest.FixtureRequest) -> str:
    return service_url(request)


async def judged(scene: Scene, count: int, blows: int) -> None:
    await scene.until_over(count)
    found = await scene.verdict()
    print(found)
    assert found.faults == NO_FAULTS
    assert found.intents_accepted == count
    assert found.unknown_outcomes > 0, "no blow met an attempt under way: the run proves nothing"
    glance = await scene.glance()
    assert glance is not None
    assert glance.epoch is not None
    assert glance.epoch > blows
    for name in ("intent-00000", f"intent-{count - 1:05}"):
        history = (await scene.client.get(f"{scene.haproxy.url}/v1/intents/{name}/history")).json()
        assert history["intent"]["status"] != "pending"


@pytest.mark.fault("server-kill", "service", "postgres")
@pytest.mark.fault("kill", "service", "postgres")
@pytest.mark.fault("freeze", "service", "postgres")
@pytest.mark.long
@pytest.mark.needs("haproxy")
@pytest.mark.limit(400)
async def test_2000_intents_survive_two_dead_leaders_a_frozen_one_and_a_crashed_database(
    own_postgres: PostgresServer, tmp_path: Path
) -> None:
    def crash() -> None:
        own_postgres.kill9()
        own_postgres.start()

    async with a_scene(own_postgres.dsn(), tmp_path) as scene:
        await scene.start()
        for part, blow in enumerate(
            (scene.kill_leader, scene.freeze_leader, lambda: scene.crash(crash), scene.kill_leader)
        ):
            scene.want(*map(intent, range(part * 500, part * 500 + 500)))
            await blow()
        await judged(scene, 2000, blows=4)


@pytest.mark.needs("haproxy")
@pytest.mark.limit(600)
@pytest.mark.parametrize("url", ["sqlserver"], indirect=True)
async def test_on_sql_server_intents_survive_a_dead_leader_and_a_frozen_one(url: str, tmp_path: Path) -> None:
    async with a_scene(url, tmp_path) as scene:
        await scene.start(None, **SQL_SERVER_SETTINGS)
        for part, blow in enumerate((scene.kill_leader, scene.freeze_leader)):
            scene.want(*map(intent, range(part * 100, part * 100 + 100)))
            await blow()
        await judged(scene, 200, blows=2)


@pytest.mark.needs("haproxy")
@pytest.mark.limit(90)
async def test_on_sqlite_intents_survive_a_dead_leader_and_a_frozen_one(sqlite_url: str, tmp_path: Path) -> None:
    async with a_scene(sqlite_url, tmp_path) as scene:
        await scene.start()
        numbers = itertools.count()
        for blow in (scene.kill_leader, scene.freeze_leader):
            await scene.strike(blow, numbers, at_first=150)
        await judged(scene, next(numbers), blows=2)
