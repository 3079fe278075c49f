"""Nothing of the library holds SQLite's write lock for longer than its statements take."""

import ast
import datetime as dt
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fencehold.backends.sqlite.backend import SqliteBackend
from fencehold.backends.sqlite.items.items import SqliteItems
from fencehold.backends.sqlite.outbox.events import SqliteEvents
from fencehold.backends.sqlite.session import Session
from fencehold.model.election.rules import Ask, Lease
from fencehold.model.errors import LeaseLost
from fencehold.model.items.rules import ItemKey
from fencehold.model.outbox.rules import Status
from fencehold.ports.events import ClaimAsk, ClaimKey, Failure, Filter
from fencehold.ports.fence import GuardText
from fencehold.ports.items import ItemRow, NewItem
from fencehold.testing.conformance.outbox.pair import event
from tests.fencehold.backends.sqlite.lock_witness import witnessed, writers
from tests.fencehold.own_tables.notebook import opened, write, written
from tests.tidy.tree import ROOT, Function, functions, parsed

LIMIT_S = 5.0
BACKEND = ROOT / "src" / "fencehold" / "backends" / "sqlite"
HARMLESS = (
    "fencehold.backends.sqlite", "fencehold.backends.sql.statements", "fencehold.backends.sql.own_tables",
    "fencehold.backends.sql.own_rows", "fencehold.backends.sql.steps", "fencehold.backends.sql.migrations",
    "namedtuple_Run", "fencehold.ports.own_tables", "json", "contextlib", "functools", "threading",
)  # fmt: skip


async def use_leases(backend: SqliteBackend) -> None:
    await backend.schema.init(LIMIT_S)
    granted = await backend.leases.acquire(Ask("x", "me", 30.0, "nonce"), LIMIT_S)
    assert isinstance(granted, Lease)
    key = granted.key(30.0)
    await backend.leases.renew([key], LIMIT_S)
    await backend.leases.ask_step_down("x", 1, LIMIT_S)
    await backend.leases.release([key], LIMIT_S)
    await backend.checkup.try_write(LIMIT_S)


async def use_events(events: SqliteEvents) -> None:
    await events.schema.init(LIMIT_S)
    await events.port.add([event(), event(), event(), event()], LIMIT_S)
    turn = await events.port.turn([], ClaimAsk(4, "token", 30.0), LIMIT_S)
    done, failed, given_back, lapsed = [ClaimKey(claim.id, claim.token) for claim in turn.claims]
    await events.port.turn([done], None, LIMIT_S)
    await events.port.fail([Failure(failed, "broken", 0.0, retry=False)], LIMIT_S)
    await events.port.release([given_back], LIMIT_S)
    await events.port.renew([lapsed], 0.001, LIMIT_S)
    while not await events.port.reap(10, LIMIT_S):  # it lapses in a millisecond
        pass
    await events.admin.redrive(Filter(), "repaired", 10, 0.0, LIMIT_S)
    assert await events.admin.purge(Filter(statuses=(Status.COMPLETED,)), 10, LIMIT_S) == 1


async def use_items(items: SqliteItems) -> None:
    await items.schema.init(LIMIT_S)
    await items.port.put(NewItem("a", "NEW", "{}", "me"), LIMIT_S)
    await items.leases.acquire("a", "me", 30.0, LIMIT_S)
    [item] = (await items.port.get(["a"], LIMIT_S)).values()
    key = ItemKey("a", "me", item.token)
    await items.leases.renew([key], 30.0, LIMIT_S)
    await items.port.save(key, "NEXT", None, LIMIT_S)
    assert await items.leases.break_leases([key], LIMIT_S) == {}
    [taken] = await items.leases.next_for_state("NEXT", 10, "me", 30.0, LIMIT_S)
    assert isinstance(taken, ItemRow)
    assert await items.port.delete(ItemKey("a", "me", taken.token), LIMIT_S) is None


class FakeTerm:
    name, holder_id, epoch, remaining_s = "x", "me", 1, 30.0

    def check(self) -> None:
        return None

    def lost(self, why: str) -> LeaseLost:
        return LeaseLost(why)

    def guard(self) -> GuardText:
        return GuardText("1 = :one", "1 = :one", {"one": 1})

    def transaction(self) -> Any:
        raise AssertionError("each of its pauses would hold the lock")


async def use_own_tables(path: str) -> None:
    tables = opened(f"sqlite:///{path}")
    await tables.init()
    await tables.run_all([write("a", 1, dt.datetime.now(dt.UTC)), write("b")], LIMIT_S)
    assert await tables.fenced(FakeTerm(), written(write("c"), write("d"))) == 2
    await tables.close()


async def test_no_transaction_of_the_library_spans_a_turn_of_the_event_loop_or_another_call(tmp_path, monkeypatch):
    with witnessed(monkeypatch, *HARMLESS, written.__module__) as witness:
        backend = SqliteBackend(str(tmp_path / "a.db"), "fencehold_leases")
        events, items = backend.events("outbox"), backend.items("kind")
        await use_leases(backend)
        await use_events(events)
        await use_items(items)
        await use_own_tables(str(tmp_path / "a.db"))
        for part in (events, items, backend):
            await part.close()
    assert witness.faults == []
    assert witness.verbs == writers(*BACKEND.rglob("*.py")), "a verb that writes is missing above"


async def test_a_fenced_transaction_that_is_refused_gives_the_lock_back_before_the_event_loop_goes_on(
    tmp_path, monkeypatch
):
    with witnessed(monkeypatch, *HARMLESS) as witness:
        backend = SqliteBackend(str(tmp_path / "a.db"), "fencehold_leases")
        await backend.schema.init(LIMIT_S)
        granted = await backend.leases.acquire(Ask("x", "me", 30.0, "nonce"), LIMIT_S)
        assert isinstance(granted, Lease)
        key, remaining_s = granted.key(30.0), iter([30.0, 30.0, 0.0])
        with pytest.raises(LeaseLost, match="before the commit"):
            async with backend.fences.transaction(key, lambda: next(remaining_s, 0.0)):
                witness.faults.clear()  # so far it is the caller's: the lock is held while the block runs
        await backend.leases.release([key], LIMIT_S)
        with pytest.raises(LeaseLost, match="refused"):
            async with backend.fences.transaction(key, lambda: 30.0):
                raise AssertionError("not reached")
        await backend.fences.close()
        await backend.close()
    assert witness.faults == []


def test_a_transaction_is_begun_in_known_places_only():
    """Who begins one elsewhere must say here why it is short."""
    found = {
        (path.name, function.name)
        for folder in (BACKEND, ROOT / "src" / "submission_manager" / "stores")
        for path, tree in parsed(folder)
        for function in functions(tree)
        if any(isinstance(node, ast.Constant) and "BEGIN IMMEDIATE" in str(node.value) for node in owned(function))
    }
    assert found == {
        ("session.py", "_write"),  # the library's own: one call on one thread
        ("fences.py", "enter"),  # the caller's own: term.transaction()
        ("checkup.py", "_write"),  # the doctor's: rolled back by the same call
        ("schema.py", "script"),  # a text for SQLite's shell
    }


def owned(function: Function) -> Iterator[ast.AST]:
    """What is in the function itself, and not in one inside it."""
    waiting = list(ast.iter_child_nodes(function))
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, Function):
            waiting += ast.iter_child_nodes(node)


async def test_the_witness_names_a_call_and_an_await_inside_a_transaction(tmp_path: Path, monkeypatch):
    def slow(connection):
        connection.execute("CREATE TABLE t (a)")
        time.sleep(0)

    with witnessed(monkeypatch, __name__) as witness:
        session = Session(str(tmp_path / "a.db"))
        await session.write(slow, LIMIT_S, mode="rwc")
        assert witness.faults == ["time.sleep was called"]
        await session.call(lambda: session.connection(1).execute("BEGIN IMMEDIATE"), LIMIT_S)
        await session.call(session.roll_back, LIMIT_S)
        await session.close()
    assert witness.faults[1:] == ["a transaction was left open, for the event loop to go on with"]
