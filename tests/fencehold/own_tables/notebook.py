"""A service with one table of its own, `notes`, on any database."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import fencehold
from fencehold.own_tables import OwnTables, Row, Statement, Steps, own_tables

PACKAGE, TABLE = "tests.fencehold.own_tables.notes", "notes"
LIMIT_S = 30.0


def opened(url: str, **options: Any) -> OwnTables:
    return own_tables(url, PACKAGE, TABLE, **options)


@asynccontextmanager
async def notebook(url: str) -> AsyncIterator[OwnTables]:
    """Its table is there, and has nothing in it."""
    tables = opened(url)
    try:
        await tables.init()
        yield tables
    finally:
        await tables.close()


def write(note_id: str, weight: int = 1, written_at: Any = None) -> Statement:
    return Statement("write", {"id": note_id, "weight": weight, "written_at": written_at})


async def read(tables: OwnTables, *ids: str) -> list[Row]:
    return await tables.run(Statement("read", {"ids": list(ids)}), LIMIT_S)


async def ids_of(tables: OwnTables, *ids: str) -> list[str]:
    return [row["note_id"] for row in await read(tables, *ids)]


def written(*notes: Statement) -> Steps[int]:
    """Writes them all under one fence; how many there were."""
    count = 0
    for note in notes:
        count += len((yield note))
    return count


@asynccontextmanager
async def led(url: str, name: str = "writer") -> AsyncIterator[fencehold.Term]:
    async with fencehold.connect(url) as store:
        await store.init()
        leader = store.leader(name, lease="60s", acquire_every="50ms", release_on_stop=False)
        await leader.start()
        assert await leader.wait_for_leadership(LIMIT_S)
        assert leader.term is not None
        yield leader.term
