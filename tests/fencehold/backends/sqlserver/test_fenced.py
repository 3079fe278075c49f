"""Fenced transactions on a driver that answers from a script: no server is needed. On a real one: test_fence.py."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import mssql_python
import pytest

from fencehold.backends.sql.statements import Statements
from fencehold.backends.sqlserver.fences import SqlServerFences
from fencehold.model.election.rules import TermKey
from fencehold.model.errors import ConfigurationError, FenceholdError, LeaseLost, Unavailable, Uncertain
from tests.fencehold.backends.sqlserver.test_lines import ADDRESS, PLENTY_S, Made, made

__all__ = ["made"]

KEY = TermKey("job", "ada", 3, 30.0, "id")
HELD, LOST, BUSY = (1, 0, 1, 1), (1, 0, 0, 1), (1, -1, 1, 1)


class Names(Statements):
    """Each statement is its name."""

    def __init__(self) -> None:
        super().__init__("fencehold.backends.sqlserver", "fencehold_leases")

    def named(self, name: str) -> str:
        return name


class Term:
    """The time that is left of it, until it is over."""

    is_over = False

    def __call__(self) -> float:
        return 0.0 if self.is_over else 0.05


def answers(**said: Any) -> Callable[[str], Any]:
    """What the server says to a statement, by its name; to one of the caller's, its text."""
    told = {"enter": [HELD], "commit": [("committed",)], **said}
    return lambda text: told.get(text, [(text,)])


async def in_async(fences: SqlServerFences, term: Term) -> Any:
    async with fences.transaction(KEY, term) as tx:
        return await (await tx.execute("SELECT 1")).fetchall()


async def in_sync(fences: SqlServerFences, term: Term) -> Any:
    def body() -> Any:
        with fences.transaction_sync(KEY, term) as tx:
            return tx.execute("SELECT 1").fetchall()

    return await asyncio.to_thread(body)


Body = Callable[[SqlServerFences, Term], Awaitable[Any]]
both = pytest.mark.parametrize("body", [in_async, in_sync])


def own(made: Made) -> list[str]:
    return [text for connection in made for text in connection.texts if not text.startswith(("SET ", "SELECT @@"))]


@both
async def test_a_transaction_is_entered_used_and_committed(made: Made, body: Body):
    made.answer = answers()
    fences = SqlServerFences(ADDRESS, Names())
    assert await body(fences, Term()) == [("SELECT 1",)]
    assert own(made) == ["enter", "SELECT 1", "commit"]
    await fences.close()
    assert await asyncio.to_thread(made[0].closed.wait, PLENTY_S)


@both
@pytest.mark.parametrize(("row", "kind"), [(LOST, LeaseLost), (BUSY, Unavailable)])
async def test_who_is_refused_runs_nothing_and_keeps_no_line(made: Made, body: Body, row: Any, kind: type):
    made.answer = answers(enter=[row])
    with pytest.raises(kind):
        await body(SqlServerFences(ADDRESS, Names()), Term())
    assert own(made) == ["enter"]
    assert await asyncio.to_thread(made[0].closed.wait, PLENTY_S)


@both
@pytest.mark.parametrize(
    ("verdict", "kind"), [("gone", ConfigurationError), ("busy", Unavailable), ("taken", LeaseLost)]
)
async def test_what_was_not_committed_is_an_error(made: Made, body: Body, verdict: str, kind: type):
    made.answer = answers(commit=[(verdict,)])
    with pytest.raises(kind):
        await body(SqlServerFences(ADDRESS, Names()), Term())
    assert await asyncio.to_thread(made[0].closed.wait, PLENTY_S)


@both
@pytest.mark.parametrize(
    ("where", "kind", "said"),
    [
        ("enter", LeaseLost, "nothing was committed"),
        ("SELECT 1", LeaseLost, "nothing was committed"),
        ("commit", Uncertain, "its commit was under way"),
    ],
)
async def test_a_term_that_ends_while_the_server_is_silent(
    made: Made, body: Body, where: str, kind: type[FenceholdError], said: str
):
    term, back = Term(), threading.Event()
    usual = answers()

    def answer(text: str) -> Any:
        if text == where:
            term.is_over = True
            back.wait(PLENTY_S)
        return usual(text)

    made.answer = answer
    with pytest.raises(kind, match=said):
        await body(SqlServerFences(ADDRESS, Names()), term)
    back.set()
    assert await asyncio.to_thread(made[0].closed.wait, PLENTY_S)


async def test_a_line_is_kept_and_one_that_died_meanwhile_is_replaced(made: Made):
    lost = mssql_python.OperationalError("Communication link failure", "TCP Provider: Error code 0x2746")
    made.answer = answers()
    fences = SqlServerFences(ADDRESS, Names())
    for _ in range(2):
        await in_async(fences, Term())
    assert len(made) == 1
    told = iter([lost, [HELD]])
    made.answer = lambda text: next(told) if text == "enter" else answers()(text)
    await in_async(fences, Term())
    assert len(made) == 2
    await fences.close()


async def test_a_lock_in_the_way_on_a_kept_line_is_not_tried_again(made: Made):
    made.answer = answers()
    fences = SqlServerFences(ADDRESS, Names())
    await in_async(fences, Term())
    made.answer = answers(enter=[BUSY])
    with pytest.raises(Unavailable) as caught:
        await in_async(fences, Term())
    assert (caught.value.code, len(made)) == ("busy", 1)


async def test_after_a_statement_that_was_given_up_nothing_is_committed(made: Made):
    inside, back, usual = threading.Event(), threading.Event(), answers()

    def answer(text: str) -> Any:
        if text == "slow":
            inside.set()
            back.wait(PLENTY_S)
        return usual(text)

    async def body() -> None:
        async with SqlServerFences(ADDRESS, Names()).transaction(KEY, Term()) as tx:
            statement = asyncio.ensure_future(tx.execute("slow"))
            assert await asyncio.to_thread(inside.wait, PLENTY_S)
            statement.cancel()
            await asyncio.wait([statement])

    made.answer = answer
    with pytest.raises(ConfigurationError) as caught:
        await body()
    back.set()
    assert caught.value.code == "statement_given_up"
    assert "commit" not in own(made)
