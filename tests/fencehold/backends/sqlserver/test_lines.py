"""One connection on a thread of its own: what is answered when the driver is slow, hangs, fails or hands out bad goods.

The driver's part is played by a stand-in whose calls wait until the test lets them go; the same on a real server is in
the conformance suite (NetworkFaults, Fences) and at the end of this file.
"""

import asyncio
import datetime as dt
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import mssql_python
import pytest

from fencehold.backends.sql.statements import Statements
from fencehold.backends.sqlserver import batch, driver, faults
from fencehold.backends.sqlserver import line as lines
from fencehold.backends.sqlserver.address import Address
from fencehold.backends.sqlserver.leases import SqlServerLeases
from fencehold.backends.sqlserver.line import Line
from fencehold.backends.sqlserver.own_tables import SqlServerOwnTables
from fencehold.backends.sqlserver.session import Session
from fencehold.model.election.rules import Ask, Busy
from fencehold.model.errors import ConfigurationError, FenceholdError, Unavailable, Uncertain
from fencehold.own_tables import Statement
from tests.fencehold.own_tables.notebook import PACKAGE, TABLE

ADDRESS = Address.of("mssql://clerk:secret@127.0.0.1:1/db")
PLENTY_S = 30.0
SENT_WITHIN_S = 2.0  # on a busy machine a thread may take a while to begin
SHORT_S = 0.05


class FakeCursor:
    def __init__(self, connection: "FakeConnection") -> None:
        self._connection = connection
        self.description: object = None
        self.rowcount = -1
        self._rows: list[tuple[Any, ...]] = []

    def execute(self, text: str, *values: Any) -> "FakeCursor":
        self._connection.texts.append(text)
        answer = self._connection.answer(text)
        if isinstance(answer, Exception):
            raise answer
        self.description, self._rows = (object(), answer) if answer is not None else (None, [])
        return self

    def fetchall(self) -> list[tuple[Any, ...]]:
        return self._rows

    def nextset(self) -> bool:
        return False

    def close(self) -> None: ...


class FakeConnection:
    """Answers each text as it is told to; `closed` is set when it was closed."""

    def __init__(self, answer: Callable[[str], Any]) -> None:
        self.texts: list[str] = []
        self.timeout = 0
        self.closed = threading.Event()
        self._answer = answer

    def answer(self, text: str) -> Any:
        if text == lines.OPEN_TRANSACTIONS:
            return [(0,)]
        return None if text.startswith("SET ") and "SELECT" not in text else self._answer(text)

    def cursor(self) -> FakeCursor:
        return FakeCursor(self)

    def close(self) -> None:
        self.closed.set()


class Made(list[FakeConnection]):
    """The connections that were asked for; `gate` holds each up until it is set."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Event()
        self.gate.set()
        self.answer: Callable[[str], Any] = lambda text: [(text,)]
        self.asked = threading.Event()

    def connect(self, address: Address, *, limit_s: int, autocommit: bool = True) -> FakeConnection:
        self.asked.set()
        assert self.gate.wait(PLENTY_S)
        self.append(FakeConnection(self._answered))
        return self[-1]

    def _answered(self, text: str) -> Any:
        return self.answer(text)  # which a test may have changed since


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Iterator[Made]:
    made = Made()
    monkeypatch.setattr(driver, "connect", made.connect)
    yield made
    made.gate.set()


def session() -> Session:
    return Session(ADDRESS, Statements("fencehold.backends.sqlserver", "fencehold_leases"))


async def run(one: Session, text: str, limit_s: float = PLENTY_S) -> batch.Rows:
    return await one.batch(text, {}, limit_s)


async def test_one_connection_serves_one_call_after_another(made: Made):
    one = session()
    assert await run(one, "a") == [("a",)]
    assert await run(one, "b") == [("b",)]
    assert len(made) == 1
    await one.close()
    assert await asyncio.to_thread(made[0].closed.wait, PLENTY_S)


@pytest.mark.parametrize(("verdict", "connections"), [("busy", 1), ("spent", 2)])
async def test_a_session_that_was_refused_a_lock_by_an_odd_number_is_not_used_again(
    made: Made, verdict: str, connections: int
):
    at = dt.datetime(2026, 1, 1)  # noqa: DTZ001 - as the driver gives it
    made.answer = lambda text: [(verdict, "job", "ada", 1, at, at, at, at, 0, "", "id")]
    one = session()
    for _ in range(2):
        answer = await SqlServerLeases(one).acquire(Ask("job", "bob", 30.0, "n"), PLENTY_S)
        assert isinstance(answer, Busy), answer
    assert len(made) == connections
    await one.close()


async def test_while_it_connects_nothing_was_sent_and_the_connection_is_the_next_calls(made: Made):
    made.gate.clear()
    one = session()
    with pytest.raises(Unavailable) as caught:
        await run(one, "never sent", SHORT_S)
    assert caught.value.code == "unreachable"
    assert "nothing was sent" in caught.value.message
    made.gate.set()
    assert await run(one, "sent") == [("sent",)]
    assert len(made) == 1
    assert "never sent" not in made[0].texts, "what was given up ran after all"


async def test_a_connection_attempt_that_never_ends_is_given_up_for_a_new_one(
    made: Made, monkeypatch: pytest.MonkeyPatch
):
    made.gate.clear()
    one = session()
    with pytest.raises(Unavailable):
        await run(one, "a", SHORT_S)
    monkeypatch.setattr(lines, "CONNECT_LIMIT_S", 0)
    with pytest.raises(Unavailable):
        await run(one, "b", SHORT_S)
    made.gate.set()
    assert await run(one, "c") == [("c",)]
    assert all("b" not in connection.texts for connection in made)


async def test_a_call_that_hangs_is_uncertain_and_its_connection_is_never_used_again(made: Made):
    back = threading.Event()
    made.answer = lambda text: (back.wait(PLENTY_S), [(text,)])[1] if text == "hangs" else [(text,)]
    one = session()
    await run(one, "a")  # it is connected, and its thread runs
    with pytest.raises(Uncertain) as caught:
        await run(one, "hangs", SENT_WITHIN_S)
    assert caught.value.code == "no_answer"
    assert await run(one, "b") == [("b",)]
    assert [connection.texts[-1] for connection in made] == ["hangs", "b"]
    back.set()
    assert await asyncio.to_thread(made[0].closed.wait, PLENTY_S), "it came back and was not closed"
    assert not made[1].closed.is_set()


async def test_a_cancelled_call_takes_its_connection_with_it(made: Made):
    back, inside = threading.Event(), threading.Event()

    def answer(text: str) -> Any:
        if text == "hangs":
            inside.set()
            back.wait(PLENTY_S)
        return [(text,)]

    made.answer = answer
    one = session()
    task = asyncio.create_task(run(one, "hangs"))
    assert await asyncio.to_thread(inside.wait, PLENTY_S)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await run(one, "b") == [("b",)]
    assert len(made) == 2
    back.set()


async def test_who_waits_for_a_busy_connection_is_told_that_nothing_was_sent(made: Made):
    back, inside = threading.Event(), threading.Event()

    def answer(text: str) -> Any:
        if text == "slow":
            inside.set()
            back.wait(PLENTY_S)
        return [(text,)]

    made.answer = answer
    one = session()
    task = asyncio.create_task(run(one, "slow"))
    assert await asyncio.to_thread(inside.wait, PLENTY_S)
    with pytest.raises(Unavailable) as caught:
        await run(one, "b", SHORT_S)
    assert caught.value.code == "busy"
    back.set()
    assert await task == [("slow",)]
    assert "b" not in made[0].texts


async def test_a_connection_that_saw_an_error_is_never_used_again(made: Made):
    made.answer = lambda text: mssql_python.ProgrammingError("x", "wrong") if text == "wrong" else [(text,)]
    one = session()
    with pytest.raises(Unavailable):
        await run(one, "wrong")
    assert await run(one, "b") == [("b",)]
    assert len(made) == 2


async def test_a_connection_inside_a_transaction_is_refused(made: Made, monkeypatch: pytest.MonkeyPatch):
    """Each batch commits its own transaction; inside another one that commit would be none."""
    monkeypatch.setattr(FakeConnection, "answer", lambda self, text: [(1,)] if "@@TRANCOUNT" in text else None)
    with pytest.raises(ConfigurationError) as caught:
        await run(session(), "a")
    assert caught.value.code == "pooled_connection"
    assert await asyncio.to_thread(made[0].closed.wait, PLENTY_S)
    assert "a" not in made[0].texts


async def test_the_victim_of_a_deadlock_is_run_again_and_not_for_ever(made: Made):
    victims = [mssql_python.OperationalError("Serialization failure", "deadlocked on lock resources") for _ in range(9)]
    failures = iter(victims[:3])
    made.answer = lambda text: next(failures, [(text,)])
    assert await run(session(), "a") == [("a",)]
    assert made[0].texts.count("a") == 4
    failures = iter(victims)
    with pytest.raises(Unavailable) as caught:
        await run(session(), "b")
    assert caught.value.code == "busy"
    assert made[1].texts.count("b") == batch.DEADLOCK_TRIES


async def test_the_server_is_told_to_give_up_a_lock_before_the_caller_gives_up_the_answer(made: Made):
    one = session()
    for limit_s in (5.0, 4.9, 0.4):
        await run(one, "a", limit_s)
    told = [text for text in made[0].texts if text.startswith("SET LOCK_TIMEOUT")]
    assert told == ["SET LOCK_TIMEOUT 4096", "SET LOCK_TIMEOUT 256"]
    assert made[0].timeout == 1, "the statement's own limit, in whole seconds"


def test_a_line_that_keeps_open_has_implicit_transactions(made: Made):
    for keeps_open, word in ((True, "ON"), (False, "OFF")):
        line = Line(ADDRESS, keeps_open=keeps_open)
        line.submit(lambda connection: None).result(PLENTY_S)
        assert f"SET IMPLICIT_TRANSACTIONS {word};" in made[-1].texts[0]
        assert "SET XACT_ABORT ON;" in made[-1].texts[0]
        line.leave()


async def test_a_service_reads_on_a_line_of_its_own_which_ends_with_its_tables(made: Made):
    made.answer = lambda text: None
    tables = SqlServerOwnTables("mssql://u@h/d", PACKAGE, TABLE, connections=1, fenced=1, name="notes")
    reader, read = tables.reader(), Statement("read", {"ids": ["a"]})
    assert await tables.run(read, PLENTY_S) == []
    assert await reader.run_all([read, read], PLENTY_S) == [[], []]
    assert await reader.listen(PLENTY_S) is False
    assert len(made) == 2
    await tables.close()
    for connection in made:
        assert await asyncio.to_thread(connection.closed.wait, PLENTY_S)


def of(kind: str, state: str, text: str) -> Exception:
    error: Exception = getattr(mssql_python, kind)(state, f"[Microsoft][SQL Server]{text}")
    return error


SAID: list[tuple[Exception, type[FenceholdError], str]] = [
    (of("ProgrammingError", "x", "Lock request time out period exceeded."), Unavailable, "busy"),
    (of("OperationalError", "Serialization failure", "chosen as the deadlock victim."), Unavailable, "busy"),
    (of("IntegrityError", "Integrity constraint violation", "duplicate key row"), Unavailable, "conflict"),
    (of("IntegrityError", "Integrity constraint violation", "conflicted with a CHECK"), Unavailable, "store_error"),
    (of("ProgrammingError", "x", "Invalid object name 'OPENJSON'."), ConfigurationError, "old_database"),
    (of("ProgrammingError", "x", "Invalid object name 'x'."), ConfigurationError, "schema_missing"),
    (of("ProgrammingError", "x", 'The specified schema name "ops" either does not exist or is not yours.'),
     ConfigurationError, "no_such_schema"),
    (of("ProgrammingError", "x", "The SELECT permission was denied on 'x'."), ConfigurationError, "no_permission"),
    (of("OperationalError", "x", "because the database is read-only."), Unavailable, "read_only"),
    (of("OperationalError", "Communication link failure", "TCP Provider: Error code 0x2746"), Uncertain, "no_answer"),
    (of("OperationalError", "Timeout expired", "Query timeout expired"), Uncertain, "no_answer"),
    (of("OperationalError", "General error", "Connection is busy with results"), ConfigurationError, "cursor_open"),
    (of("ProgrammingError", "x", "Divide by zero error encountered."), Unavailable, "store_error"),
]  # fmt: skip


@pytest.mark.parametrize(("error", "kind", "code"), SAID, ids=[code for _, _, code in SAID])
def test_what_the_server_says_is_executed_not_executed_or_unknown(
    error: Exception, kind: type[FenceholdError], code: str
):
    fault = faults.of_statement(error)
    assert (type(fault), fault.code) == (kind, code)


PROGRAM = """
import asyncio, sys
import mssql_python
mssql_python.native_provider = sys.argv[2]
mssql_python.pooling(max_size=5)
import fencehold

async def turn(number):
    async with fencehold.connect(sys.argv[1]) as store:
        await store.init()
        assert await store.leases.acquire(f"job {number}", lease=60)
    async with fencehold.connect(sys.argv[1]) as store:
        assert await store.leases.read(f"job {number}"), "a grant that was not kept"

async def main():
    for number in range(3):
        try:
            await turn(number)
        except fencehold.ConfigurationError as error:
            assert error.code == "pooled_connection", error.code
    print("ok")

asyncio.run(main())
"""


@pytest.mark.limit(120)
@pytest.mark.parametrize("provider", ["msodbcsql18", "mssql-odbc"])
def test_with_the_drivers_pool_on_a_grant_is_kept_or_refused(mssql_url: str, provider: str):
    if provider == "msodbcsql18" and not driver.is_default_usable():
        pytest.skip("this machine lacks what that provider needs")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, mssql_url, provider], capture_output=True, text=True, check=False
    )
    assert done.stdout == "ok\n", done.stderr[-2000:]
