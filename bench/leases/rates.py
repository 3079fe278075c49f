"""acquire + renew + release, one after the other: store.leases against the same statements by bare psycopg."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable
from typing import Any

import psycopg

import fencehold
from bench.leases.statements import PREPARE_AFTER, STATEMENTS, acquire_params, release_params, renew_params
from bench.report import Finding, Tell
from bench.server import Bench
from bench.sizes import Sizes

RATIO_MIN = 0.8
WARM_CYCLES = 20
HOLDER = "bench"

Cycle = Callable[[], Awaitable[None]]


def measure(bench: Bench, sizes: Sizes, tell: Tell) -> list[Finding]:
    return asyncio.run(_measure(bench, sizes, tell))


async def _measure(bench: Bench, sizes: Sizes, tell: Tell) -> list[Finding]:
    dsn = bench.dsn_of("rates")
    async with fencehold.connect(dsn) as store, await psycopg.AsyncConnection.connect(dsn, autocommit=True) as bare:
        with psycopg.connect(dsn, autocommit=True) as blocking:
            bare.prepare_threshold = blocking.prepare_threshold = PREPARE_AFTER
            cycles = {"store": by_store(store), "bare": by_bare(bare), "blocking": by_blocking(blocking)}
            for cycle in cycles.values():
                await per_s(cycle, WARM_CYCLES)
            rounds = []
            for index in range(sizes.rate_rounds):
                tell(f"rates: round {index} of {sizes.rate_rounds}")
                rounds.append(await one_round(cycles, index, sizes.rate_cycles))
    return findings(rounds)


async def one_round(cycles: dict[str, Cycle], index: int, count: int) -> dict[str, float]:
    """Everyone's rate, close together in time; who comes first changes from round to round."""
    order = list(cycles)[index % len(cycles) :] + list(cycles)[: index % len(cycles)]
    return {name: await per_s(cycles[name], count) for name in order}


def findings(rounds: list[dict[str, float]]) -> list[Finding]:
    to_bare = [r["store"] / r["bare"] for r in rounds]
    to_blocking = [r["store"] / r["blocking"] for r in rounds]
    detail = {"rounds": len(rounds), "min": min(to_bare), "max": max(to_bare)}
    name = "acquire + renew + release: rate against bare psycopg (async)"
    return [
        Finding(name, statistics.median(to_bare), "x", RATIO_MIN, at_least=True, detail=detail),
        Finding("  against bare psycopg (sync)", statistics.median(to_blocking), "x"),
        *(
            Finding(f"  {what}", statistics.median(r[key] for r in rounds), "/s")
            for key, what in (("store", "store.leases"), ("bare", "bare async"), ("blocking", "bare sync"))
        ),
    ]


async def per_s(cycle: Cycle, count: int) -> float:
    start_s = time.perf_counter()
    for _ in range(count):
        await cycle()
    return count / (time.perf_counter() - start_s)


def by_store(store: fencehold.Store) -> Cycle:
    async def cycle() -> None:
        lease = await store.leases.acquire("rate-store", HOLDER, 30)
        assert lease is not None, "nobody else holds it"
        renewed = await store.leases.renew(lease, 30)
        assert renewed is not None, "it is live"
        assert await store.leases.release(renewed) is not None

    return cycle


def by_bare(connection: psycopg.AsyncConnection[Any]) -> Cycle:
    async def run(name: str, params: dict[str, Any]) -> list[tuple[Any, ...]]:
        return await (await connection.execute(STATEMENTS[name], params)).fetchall()

    async def cycle() -> None:
        epoch = (await run("acquire", acquire_params("rate-bare", HOLDER)))[0][3]
        assert (await run("renew", renew_params("rate-bare", HOLDER, epoch)))[0][0] == "yes"
        assert (await run("release", release_params("rate-bare", HOLDER, epoch)))[0][0] == "yes"

    return cycle


def by_blocking(connection: psycopg.Connection[Any]) -> Cycle:
    def run(name: str, params: dict[str, Any]) -> list[tuple[Any, ...]]:
        return connection.execute(STATEMENTS[name], params).fetchall()

    async def cycle() -> None:
        epoch = run("acquire", acquire_params("rate-blocking", HOLDER))[0][3]
        assert run("renew", renew_params("rate-blocking", HOLDER, epoch))[0][0] == "yes"
        assert run("release", release_params("rate-blocking", HOLDER, epoch))[0][0] == "yes"

    return cycle
