"""Standbys that are promoted without the last grants: real servers, each with a timeline of its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

import fencehold
from fencehold.model.election.places import EPOCH_JUMP, TOKEN_JUMP
from tests.fencehold.backends.postgres.places import run
from tests.servers.postgres import PostgresServer
from tests.servers.process import run_as_server

COPY_LIMIT_S = 60.0


@asynccontextmanager
async def standby_of(primary: PostgresServer) -> AsyncIterator[PostgresServer]:
    """A copy of what the primary has now; it gets nothing more, as if its connection were cut. Not started yet."""
    standby = PostgresServer(primary.program("postgres").parent, primary.version, primary._lib)
    # Else it would follow a timeline that it only knows by name.
    standby.settings["recovery_target_timeline"] = "current"
    try:
        copy: list[str | Path] = [primary.program("pg_basebackup"), "-d", primary.dsn(), "-D", standby._data]
        copying = [*copy, "-X", "stream", "-c", "fast"]
        await asyncio.to_thread(run_as_server, copying, primary.environment(), COPY_LIMIT_S)
        run_as_server(["touch", standby._data / "standby.signal"], primary.environment(), COPY_LIMIT_S)
        yield standby
    finally:
        standby.close()


async def promote(standby: PostgresServer, *known: PostgresServer) -> None:
    """Knowing of those that were promoted before it."""
    for one in known:
        [history] = (one._data / "pg_wal").glob("*.history")
        run_as_server(["cp", history, standby._data / "pg_wal"], one.environment(), COPY_LIMIT_S)
    await asyncio.to_thread(standby.start)
    await asyncio.to_thread(run, standby.dsn(), "SELECT pg_promote()")


async def granted(server: PostgresServer, name: str, times: int = 1) -> list[int]:
    async with fencehold.connect(server.dsn()) as store:
        epochs = []
        for _ in range(times):
            lease = await store.leases.acquire(name, "ada", lease=30)
            assert lease is not None
            epochs.append(lease.epoch)
            await store.leases.release(lease)
        return epochs


async def token(server: PostgresServer, times: int = 1) -> list[int]:
    async with fencehold.connect(server.dsn()) as store:
        items, tokens = store.items("deal"), []
        for _ in range(times):
            item = await items.acquire("7")
            assert item._lease is not None
            tokens.append(item._lease.key.token)
            await items.break_lease(item)
        return tokens


async def init(server: PostgresServer) -> None:
    async with fencehold.connect(server.dsn()) as store:
        items = store.items("deal")
        await store.init()
        await items.put("7", state="NEW", document={})


@pytest.mark.fault("failover-async", "items")
@pytest.mark.fault("failover-async", "leader")
@pytest.mark.limit(180)
async def test_two_standbys_promoted_in_turn_from_one_row_give_no_epoch_or_token_twice(
    own_postgres: PostgresServer,
) -> None:
    await init(own_postgres)
    assert await granted(own_postgres, "job", 2) == [1, 2]
    async with standby_of(own_postgres) as first, standby_of(own_postgres) as second:
        lost, lost_tokens = await granted(own_postgres, "job", 3), await token(own_postgres, 40)
        assert await granted(own_postgres, "born on the lost branch") == [1]
        await promote(first)
        lost += await granted(first, "job", 3)
        lost_tokens += await token(first, 3)
        assert lost[3:] == [EPOCH_JUMP + 2, EPOCH_JUMP + 3, EPOCH_JUMP + 4]
        assert await granted(first, "born on the lost branch") == [EPOCH_JUMP + 1]
        await promote(second, first)
        assert await granted(second, "job", 2) == [2 * EPOCH_JUMP + 2, 2 * EPOCH_JUMP + 3]
        assert await granted(second, "born on the lost branch") == [2 * EPOCH_JUMP + 1]
        assert lost_tokens[-1] > TOKEN_JUMP
        assert min(await token(second, 2)) > max(lost_tokens) + TOKEN_JUMP // 2


@pytest.mark.limit(120)
async def test_a_promoted_server_counts_on_far_above_what_it_never_saw(own_postgres: PostgresServer) -> None:
    await init(own_postgres)
    assert await granted(own_postgres, "job") == [1]
    async with standby_of(own_postgres) as standby:
        assert await granted(own_postgres, "job", 2) == [2, 3]
        await promote(standby)
        assert await granted(standby, "job", 2) == [EPOCH_JUMP + 1, EPOCH_JUMP + 2]
