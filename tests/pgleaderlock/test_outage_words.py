"""A lock whose database cannot be reached says so at once, then once a minute, and when it is over."""

import asyncio
import logging
import socket
from types import SimpleNamespace

import pytest

from mssqlleaderlock import LeaderLock as SqlServerLock
from pgleaderlock import LeaderLock
from tests.fencehold.runtime.election.faces import until
from tests.fencehold.testing.simulation.on_virtual_time import virtual
from tests.mssqlleaderlock.fake_session import Scene as SqlServerScene
from tests.pgleaderlock.fake_server import Scene

SCENES = pytest.mark.parametrize(
    ("scene_of", "logger"), [(Scene, "pgleaderlock"), (SqlServerScene, "mssqlleaderlock")], ids=["postgres", "mssql"]
)


def closed_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def words(caplog: pytest.LogCaptureFixture, event: str) -> list[logging.LogRecord]:
    return [record for record in caplog.records if getattr(record, "event", "") == event]


@SCENES
def test_an_outage_is_told_at_once_then_once_a_minute_and_at_its_end(
    scene_of: type[Scene], logger: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger)

    @virtual
    async def run() -> None:
        scene = scene_of()
        scene.server.broken = {"connect"}
        await scene.lock.start()
        await asyncio.sleep(1)
        assert len(words(caplog, "store_unreachable")) == 1
        await asyncio.sleep(150)
        assert len(words(caplog, "store_unreachable")) == 3
        assert words(caplog, "store_answers") == []
        scene.server.broken = set()
        assert await scene.lock.wait_for_leadership(30)
        await scene.lock.shutdown()

    run()
    assert [record.levelname for record in words(caplog, "store_unreachable")] == ["WARNING"] * 3
    assert len(words(caplog, "store_answers")) == 1


async def test_the_word_has_the_address_and_what_to_do_and_no_password(caplog: pytest.LogCaptureFixture) -> None:
    port = closed_port()
    lock = LeaderLock(f"postgresql://ada:secret@127.0.0.1:{port}/db", 1, 100)
    async with lock:
        await until(lambda: bool(words(caplog, "store_unreachable")))
    text = words(caplog, "store_unreachable")[0].getMessage()
    assert f"127.0.0.1:{port}" in text
    assert "Check the address, and that the server runs" in text
    assert "secret" not in text


def test_the_address_of_a_lock_on_sql_server_is_told_without_its_password() -> None:
    lock = SqlServerLock("mssql://ada:secret@host:1444/db", "job")
    assert lock._where() == "host:1444/db"


@virtual
async def test_a_lock_that_is_held_by_another_is_no_outage() -> None:
    scene = Scene()
    scene.server.holder = "another"
    told: list[str] = []
    scene.lock._log.sink = SimpleNamespace(fact=lambda event, **fields: told.append(event))
    await scene.lock.start()
    await scene.reach("acquire_failed", times=3)
    await scene.lock.shutdown()
    assert "store_unreachable" not in told
