"""What is for a program with an event loop, used in one without, and the other way round: the error names the cure."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiosqlite
import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

import fencehold
from fencehold import sync

Attempt = Callable[[sync.Store, sync.Term, Any], object]


def fenced(store: sync.Store, term: sync.Term, connection: Any) -> None:
    term.fence(connection)


def added(store: sync.Store, term: sync.Term, connection: Any) -> object:
    return store.outbox("outbox").add("a", {}, tx=connection)


def met(store: sync.Store, term: sync.Term, connection: Any) -> object:
    return store.outbox("outbox").first_time("00000000-0000-0000-0000-000000000001", "me", tx=connection)


async def with_session(path: Path, use: Callable[[Any], object]) -> object:
    engine = create_async_engine(f"sqlite+aiosqlite:///{path}")
    try:
        async with AsyncSession(engine) as session, session.begin():
            await session.execute(text("SELECT 1"))
            return use(session)
    finally:
        await engine.dispose()


async def with_aiosqlite(path: Path, use: Callable[[Any], object]) -> object:
    async with aiosqlite.connect(path, isolation_level=None) as connection:
        await connection.execute("BEGIN")
        return use(connection)


@pytest.mark.parametrize("opened", [with_session, with_aiosqlite])
@pytest.mark.parametrize("attempt", [fenced, added, met])
def test_an_async_connection_is_refused_in_a_program_without_an_event_loop(
    attempt: Attempt, opened: Any, tmp_path: Path
) -> None:
    path = tmp_path / "a.db"
    with sync.connect(f"sqlite:///{path}") as store:
        store.outbox("outbox")
        store.init()
        with store.leader("job") as leader:
            assert leader.wait_for_leadership(20)
            term = leader.term
            assert term is not None
            with pytest.raises(fencehold.ConfigurationError, match="A sync connection is needed here") as caught:
                asyncio.run(opened(path, lambda connection: attempt(store, term, connection)))
            assert (caught.value.code, term.is_valid) == ("bad_connection", True)
            assert "async store" in caught.value.hint
            assert "Or await" not in caught.value.hint


# The other kind of block


def test_a_store_in_a_plain_with_names_the_store_for_it() -> None:
    with pytest.raises(TypeError, match=r"fencehold\.sync\.connect"), fencehold.connect("memory://"):  # type: ignore[attr-defined]
        pass


async def test_a_leader_a_term_and_an_item_in_a_plain_with_name_the_store_for_it() -> None:
    async with fencehold.connect("memory://") as store:
        items = store.items("doc")
        await store.init()
        await items.put("one", state="new", document={})
        async with store.leader("job") as leader:
            assert await leader.wait_for_leadership(10)
            for one in (leader, leader.term, await items.acquire("one")):
                given: Any = one
                with pytest.raises(TypeError, match=r"fencehold\.sync\.connect"), given:
                    pass
            block: Any = leader.term.transaction() if leader.term is not None else None
            with pytest.raises(TypeError, match=r"a transaction of fencehold: write `async with`"), block:
                pass


async def test_a_store_without_an_event_loop_in_an_async_with_names_the_store_for_it() -> None:
    given: Any = sync.connect("memory://")
    with pytest.raises(TypeError, match=r"fencehold\.connect"):
        async with given:
            pass


async def test_a_transaction_without_an_event_loop_in_an_async_with_names_the_store_for_it() -> None:
    def lead() -> Any:
        with sync.connect("memory://") as store:
            store.init()
            return store.run_as_leader("job", lambda term: term.transaction())

    with pytest.raises(TypeError, match=r"a transaction of fencehold\.sync: write `with`"):
        async with await asyncio.to_thread(lead):
            pass


async def test_a_store_that_is_awaited_names_the_ways_to_open_it() -> None:
    given: Any = fencehold.connect("memory://")
    with pytest.raises(
        TypeError, match=r"`async with fencehold\.connect\(...\) as store:`, or .* `await store.open\(\)`"
    ):
        await given
    plain: Any = sync.connect("memory://")
    with pytest.raises(TypeError, match=r"write `with fencehold\.sync\.connect\(...\) as store:`"):
        await plain


@pytest.mark.parametrize("use", [sync.Store.init, lambda store: store.outbox("outbox"), lambda store: store.leases])
def test_a_store_without_an_event_loop_that_is_not_open_names_its_own_ways_to_open_it(
    use: Callable[[sync.Store], object],
) -> None:
    never_opened, closed = sync.connect("memory://not-open"), sync.connect("memory://not-open").open()
    closed.close()
    for store in (never_opened, closed):
        with pytest.raises(fencehold.ConfigurationError, match="not open") as caught:
            use(store)
        assert caught.value.code == "store_closed"
        assert caught.value.hint == "Use `with fencehold.sync.connect(...) as store:` or `store.open()`."


def test_an_outbox_of_a_closed_store_without_an_event_loop_names_the_ways_to_open_it() -> None:
    with sync.connect("memory://closed-outbox") as store:
        outbox = store.outbox("outbox")
    with pytest.raises(fencehold.ConfigurationError) as caught:
        outbox.init()
    assert "`with fencehold.sync.connect(...) as store:`" in caught.value.hint


# A forked child


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.parametrize("use", ["check", "guard", "fence"])
async def test_a_term_says_in_a_forked_child_that_it_is_the_parents(use: str, sqlite_url: str) -> None:
    async with fencehold.connect(sqlite_url) as store:
        await store.init()
        async with store.leader("job") as leader:
            assert await leader.wait_for_leadership(20)
            term = leader.term
            said = in_child(lambda: _use(term, use, sqlite_url))
            assert "belongs to the parent process" in said
            assert "Connect anew in the child" in said
            assert "wait for the next" not in said
            assert leader.is_leader


def _use(term: Any, use: str, url: str) -> object:
    if use != "fence":
        return getattr(term, use)()
    connection = sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None)
    connection.execute("BEGIN")
    return term.fence(connection)


def in_child(call: Callable[[], object]) -> str:
    """What a forked child says of it."""
    ours, theirs = os.pipe()
    child = os.fork()
    if not child:
        try:
            said = repr(call())
        except BaseException as error:
            said = str(error)
        os.write(theirs, said.encode())
        os._exit(0)
    os.close(theirs)
    with os.fdopen(ours) as pipe:
        said = pipe.read()
    os.waitpid(child, 0)
    return said
