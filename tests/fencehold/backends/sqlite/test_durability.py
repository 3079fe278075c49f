"""Our connections to a SQLite file make every commit survive a loss of power, whatever SQLite was built with."""

import sqlite3
from typing import Any

import pytest

import fencehold
from fencehold.backends.sqlite import fences, session

FULL = 2


class BuiltWithLess(sqlite3.Connection):
    """As of a SQLite whose own default for files in WAL mode is NORMAL."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.execute("PRAGMA synchronous = NORMAL")


async def test_every_connection_of_ours_has_synchronous_full(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[int] = []
    plain, before = sqlite3.connect, session.connect

    def connect(*args: Any) -> sqlite3.Connection:
        connection = before(*args)
        found.append(connection.execute("PRAGMA synchronous").fetchone()[0])
        return connection

    monkeypatch.setattr(sqlite3, "connect", lambda *args, **kwargs: plain(*args, factory=BuiltWithLess, **kwargs))
    for module in (session, fences):
        monkeypatch.setattr(module, "connect", connect)
    async with fencehold.connect(sqlite_url) as store:
        outbox = store.outbox()
        await store.init()
        await outbox.add("order.paid", {})
        await store.items("deal").put("7", state="NEW", document={})
        async with store.leader("job", lease=30) as leader:
            assert await leader.wait_for_leadership(20)
            assert leader.term is not None
            async with leader.term.transaction():
                pass
        assert await store.leases.acquire("other")
    assert len(found) >= 5
    assert set(found) == {FULL}
