"""The steps in a caller's transaction on SQL Server, on a driver that answers from a script: no server is needed."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import mssql_python
import pytest
import sqlalchemy
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from fencehold.backends.sql.statements import OUTBOX, Statements
from fencehold.backends.sqlserver import callers, driver
from fencehold.backends.sqlserver.callers import SqlServerCallersOutbox, SqlServerFence
from fencehold.model.election.rules import TermKey
from fencehold.model.errors import FenceholdError, LeaseLost

KEY = TermKey("job", "ada", 3, 30.0, "id")
HELD, LOST, ELSEWHERE, OUTSIDE, BUSY = (1, 0, 1, 1), (1, 0, 0, 1), (1, 0, 1, 0), (0, 0, 1, 1), (1, -1, 1, 1)
UNREAD = mssql_python.ProgrammingError("", "Connection is busy with results for another command")
MISSING = mssql_python.ProgrammingError("", "Invalid object name 'fencehold_leases'.")
DEADLOCK = mssql_python.OperationalError("", "chosen as the deadlock victim")


class Names(Statements):
    """Each statement is its name, or what `texts` says."""

    def __init__(self, table: str = "fencehold_leases", topic: Any = OUTBOX, **texts: str) -> None:
        super().__init__("fencehold.backends.sqlserver", table, topic=topic)
        self._texts = texts

    def named(self, name: str) -> str:
        return self._texts.get(name, name)


class Scripted(driver.Connection):
    """Answers each statement with the next of its answers, and the last one from then on."""

    def __init__(self, **answers: Any) -> None:
        self.answers = {name: list(given) for name, given in answers.items()}
        self.said: list[str] = []
        self.thread: int | None = None

    def __del__(self) -> None:
        return None

    def cursor(self) -> Any:
        return ScriptedCursor(self)

    def rollback(self) -> None:
        self.say("rollback")

    def close(self) -> None:
        self.say("close")

    def say(self, what: str) -> Any:
        self.said.append(what)
        self.thread = threading.get_ident()
        given = self.answers.get(what, [[]])
        answer = given.pop(0) if len(given) > 1 else given[0]
        if isinstance(answer, BaseException):
            raise answer
        return answer


class ScriptedCursor:
    def __init__(self, connection: Scripted) -> None:
        self._connection = connection
        self.description: Any = None

    def execute(self, text: str, *values: Any) -> None:
        self._rows = self.description = self._connection.say(text)

    def fetchall(self) -> Any:
        return self._rows

    def nextset(self) -> bool:
        return False

    def close(self) -> None:
        return None


async def refused(connection: Any, statements: Statements, over: bool = False) -> BaseException:
    with pytest.raises(BaseException) as caught:  # noqa: PT011 - which one is asked by each test
        await SqlServerFence(statements).fence(connection, KEY, over)
    return caught.value


@pytest.mark.parametrize(
    ("rows", "code"),
    [
        ([LOST], "lease_lost"),
        ([ELSEWHERE], "wrong_store"),
        ([OUTSIDE], "fence_outside_transaction"),
        ([BUSY], "busy"),
        ([], "driver_out_of_step"),
    ],
)
async def test_a_refused_fence_rolls_back(rows: list[Any], code: str) -> None:
    connection = Scripted(fence=[rows])
    error = await refused(connection, Names())
    assert isinstance(error, FenceholdError)
    assert (error.code, connection.said) == (code, ["fence", "poison", "rollback"])


async def test_a_fence_that_holds_leaves_the_transaction_alone() -> None:
    connection = Scripted(fence=[[HELD]])
    await SqlServerFence(Names()).fence(connection, KEY)
    assert connection.said == ["fence"]


async def test_of_a_term_that_is_over_the_store_is_not_asked() -> None:
    connection = Scripted(fence=[[HELD]])
    assert isinstance(await refused(connection, Names(), over=True), LeaseLost)
    assert connection.said == ["poison", "rollback"]


@pytest.mark.parametrize(
    ("error", "kind"),
    [(MISSING, "wrong_store"), (DEADLOCK, "busy"), (UNREAD, "cursor_open"), (KeyboardInterrupt(), "")],
)
async def test_an_error_of_the_fence_rolls_back_too(error: BaseException, kind: str) -> None:
    connection = Scripted(fence=[error])
    found = await refused(connection, Names())
    assert (getattr(found, "code", ""), connection.said) == (kind, ["fence", "poison", "rollback"])


@pytest.mark.parametrize("fence", [[LOST], UNREAD])
async def test_a_transaction_that_cannot_be_rolled_back_ends_with_its_connection(fence: Any) -> None:
    connection = Scripted(fence=[fence], poison=[UNREAD])
    await refused(connection, Names())
    assert connection.said == ["fence", "poison", "close"]


async def test_spoiling_waits_on_a_thread_for_the_callers_own_statement() -> None:
    connection = Scripted(poison=[UNREAD, UNREAD, []])
    await SqlServerFence(Names()).spoil(connection)
    assert connection.said == ["poison", "poison", "poison", "rollback"]
    assert connection.thread != threading.get_ident()


async def test_it_does_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(callers, "SPOIL_LIMIT_S", 0.0)
    connection = Scripted(poison=[UNREAD])
    await SqlServerFence(Names()).spoil(connection)
    assert connection.said == ["poison", "close"]


@pytest.mark.parametrize(("verdict", "code"), [("outside", "add_outside_transaction"), ("elsewhere", "wrong_store")])
async def test_nothing_is_added_outside_a_transaction_or_in_another_database(verdict: str, code: str) -> None:
    connection = Scripted(add=[[(verdict, None)]], first_time=[[(verdict,)]])
    outbox = SqlServerCallersOutbox(Names("outbox"), never)
    for attempt in (lambda: outbox.add(connection, [], ""), lambda: outbox.first_time("", "", connection, "")):
        with pytest.raises(FenceholdError) as caught:
            await attempt()
        assert caught.value.code == code


async def test_what_was_written_is_answered() -> None:
    connection = Scripted(add=[[("added", "a"), ("added", "b")], []], first_time=[[("first",)], [("known",)]])
    outbox = SqlServerCallersOutbox(Names("outbox"), never)
    assert [await outbox.add(connection, [], "") for _ in range(2)] == [["a", "b"], []]
    assert [await outbox.first_time("", "", connection, "") for _ in range(2)] == [True, False]


async def test_no_answer_is_not_taken_for_a_repeated_event() -> None:
    with pytest.raises(ValueError, match="not enough values"):
        await SqlServerCallersOutbox(Names("outbox"), never).first_time("", "", Scripted(), "")


async def never(name: str, params: object, limit_s: float) -> list[Any]:
    raise AssertionError("asked on a connection of the outbox's own")


@contextlib.asynccontextmanager
async def alchemy(path: Path, is_async: bool) -> AsyncIterator[Any]:
    """A session that says it is one of SQL Server, with a row written in its transaction."""
    if is_async:
        engine = create_async_engine(f"sqlite+aiosqlite:///{path}")
        engine.sync_engine.dialect.name = "mssql"
        async with AsyncSession(engine) as session:
            yield session
        await engine.dispose()
        return
    sync_engine = sqlalchemy.create_engine(f"sqlite:///{path}")
    sync_engine.dialect.name = "mssql"
    with Session(sync_engine) as session:
        yield session
    sync_engine.dispose()


async def done(result: Any) -> Any:
    return await result if hasattr(result, "__await__") else result


@pytest.mark.parametrize("is_async", [False, True])
async def test_in_sqlalchemy_a_refusal_undoes_all_and_inside_a_savepoint_ends_the_connection(
    tmp_path: Path, is_async: bool
) -> None:
    lost = Names(fence=f"SELECT {', '.join(map(str, LOST))}")
    async with alchemy(tmp_path / "a.db", is_async) as session:
        await done(session.execute(sqlalchemy.text("CREATE TABLE t (a)")))
        await done(session.commit())
        for is_nested in (False, True):
            await done(session.execute(sqlalchemy.text("INSERT INTO t VALUES (1)")))
            if is_nested:
                await done(session.begin_nested())
            assert isinstance(await refused(session, lost), LeaseLost)
            if is_nested:
                with pytest.raises(sqlalchemy.exc.PendingRollbackError):
                    await done(session.execute(sqlalchemy.text("SELECT 1")))
                await done(session.rollback())
            rows = await done(session.execute(sqlalchemy.text("SELECT count(*) FROM t")))
            assert rows.scalar_one() == 0


async def test_a_statement_cut_short_by_a_cancel_is_rolled_back(tmp_path: Path) -> None:
    async with alchemy(tmp_path / "a.db", is_async=True) as session:
        await session.execute(sqlalchemy.text("CREATE TABLE t (a)"))
        await session.commit()
        await session.execute(sqlalchemy.text("INSERT INTO t VALUES (1)"))
        fencing = asyncio.ensure_future(SqlServerFence(Names(fence="SELECT 1, 0, 1, 1")).fence(session, KEY))
        await asyncio.sleep(0)
        fencing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await fencing
        assert (await session.execute(sqlalchemy.text("SELECT count(*) FROM t"))).scalar_one() == 0
