"""What a server's answers mean for the lock, and the driver's pool; no server is needed."""

import subprocess
import sys
from typing import Any

import pytest

from fencehold.backends.sqlserver.address import Address
from mssqlleaderlock import LockError
from mssqlleaderlock import session as session_module
from mssqlleaderlock.session import SQL, SqlServerSession
from tests.across_packages.processes import ROOT

WITH_THE_POOL = """
import asyncio, mssql_python
from mssqlleaderlock import LeaderLock

mssql_python.pooling(max_size=2)

async def main():
    lock = LeaderLock("mssql://clerk:geheim@127.0.0.1:1/app", "job")
    stopped = asyncio.Event()
    lock.on_error(lambda error: print(type(error).__name__, error))
    lock.on_stopped(stopped.set)
    await lock.start()
    await asyncio.wait_for(stopped.wait(), 20)

asyncio.run(main())
"""


class Script:
    """Makes connections that give the next of `answers`, whatever they are asked, and are remembered."""

    def __init__(self) -> None:
        self.answers: list[tuple[Any, ...]] = []
        self.made: list[ScriptedConnection] = []

    def __call__(self, address: Address) -> "ScriptedConnection":
        self.made.append(ScriptedConnection(self, 50 + len(self.made)))
        return self.made[-1]


class ScriptedConnection:
    wire = None

    def __init__(self, script: Script, number: int) -> None:
        self._script = script
        self._number = number
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.is_closed = False

    async def marked(self, token: str, limit_s: float) -> int:
        return self._number

    async def row(self, sql: str, params: dict[str, Any], limit_s: float) -> tuple[Any, ...]:
        self.asked.append((sql, dict(params)))
        return self._script.answers.pop(0)

    def close(self) -> None:
        self.is_closed = True


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Script:
    script = Script()
    monkeypatch.setattr(session_module, "Connection", script)
    return script


async def prepared(script: Script, *answers: tuple[int, ...]) -> SqlServerSession:
    script.answers = list(answers)
    session = SqlServerSession(Address.of("mssql://clerk@db/app"), "job")
    await session.prepare(1)
    return session


@pytest.mark.parametrize("got", [0, 1])
async def test_a_lock_that_is_granted_at_once_or_after_others_is_ours(script: Script, got: int) -> None:
    session = await prepared(script, (1, got, 0))
    assert await session.try_lock(1) is True
    assert script.made[0].asked == [
        (SQL.named("lock"), {"resource": "job", "token": session._params["token"], "session": 50})
    ]


async def test_a_refused_lock_is_asked_for_again_in_the_same_session(script: Script) -> None:
    session = await prepared(script, (1, -1, 1), (1, -1, 1), (1, 0, 0))
    assert [await session.try_lock(1) for _ in range(3)] == [False, False, True]
    assert len(script.made) == 1


async def test_after_a_refusal_in_anothers_words_the_next_request_has_a_session_of_its_own(script: Script) -> None:
    session = await prepared(script, (1, -999, 1), (1, -999, 1), (1, 0, 0))
    assert [await session.try_lock(1) for _ in range(3)] == [False, False, True]
    assert [one.is_closed for one in script.made] == [True, True, False]
    assert session.session_id == 52
    script.answers = [(1, 1)]
    assert await session.probe(1)
    assert script.made[2].asked[-1][1]["session"] == 52


@pytest.mark.parametrize("got", [-2, -3, -999])
async def test_an_answer_that_is_neither_yes_nor_no_is_an_error(script: Script, got: int) -> None:
    session = await prepared(script, (1, got, 0))
    with pytest.raises(LockError, match=f"sp_getapplock answered {got}"):
        await session.try_lock(1)


async def test_another_session_or_one_that_holds_the_lock_already_is_not_asked_for_it(script: Script) -> None:
    session = await prepared(script, (0, -999, 0), (0, 1))
    with pytest.raises(LockError, match="another server session answers"):
        await session.try_lock(1)
    with pytest.raises(LockError, match="another server session answers"):
        await session.probe(1)


async def test_possession_and_release_are_what_the_server_says(script: Script) -> None:
    session = await prepared(script, (1, 1), (1, 0), (0,), (-1,))
    assert [await session.probe(1), await session.probe(1)] == [True, False]
    assert [await session.unlock(1), await session.unlock(1)] == [True, False]


def test_the_drivers_pool_would_keep_the_lock_and_is_refused_before_anything_is_opened() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", WITH_THE_POOL], capture_output=True, text=True, timeout=50, check=False, cwd=ROOT
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.startswith("PoolerError the driver's connection pool is on")
    assert "mssql_python.pooling(enabled=False)" in ended.stdout
    assert ended.stdout.count("Error") == 1  # told once, not tried again
