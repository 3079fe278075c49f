"""Adding: many at a time against COPY, one at a time until its handler starts, and the notifications that takes."""

from __future__ import annotations

import asyncio
import statistics
from typing import Any

import psycopg

import fencehold
from bench.outbox.databases import run_verb, told
from bench.outbox.drains import workers
from bench.outbox.ground import Ground
from bench.outbox.ours import EVENT_TYPE, TABLE
from bench.outbox.systems import BARE, OURS, System
from bench.report import Finding, quantile

TO_COPY_MIN = 0.7
P50_MS_MAX, P99_MS_MAX = 4.0, 10.0
PEERS_ADDED = 3000
SINGLE_ADDS = 50
HEARD_LIMIT_S = 2.0


def measure_many(ground: Ground) -> list[Finding]:
    count, rates = ground.sizes.added, dict[str, list[float]]()
    ways = {"add_many": (OURS, "enqueue"), "bare": (BARE, "enqueue"), "same table": (OURS, "copy")}
    for index in range(ground.sizes.rounds):
        for way in list(ways)[index % 3 :] + list(ways)[: index % 3]:
            ground.tell(f"adding {count} events, round {index + 1} of {ground.sizes.rounds}: {way}")
            rates.setdefault(way, []).append(added_per_s(ground, *ways[way], count))
    found = [
        against(rates, "bare", "COPY into the bare loop's table"),
        against(rates, "same table", "COPY of the same columns into the same table"),
    ]
    names = {"add_many": OURS.label, "bare": BARE.label, "same table": "COPY into our table"}
    per_s = {names[way]: statistics.median(rates[way]) for way in ways}
    for peer in ground.peers:
        ground.tell(f"adding {PEERS_ADDED} jobs: {peer.label}")
        per_s[peer.label] = added_per_s(ground, peer, "enqueue", PEERS_ADDED)
    found += [Finding(f"{name}: add /s", value, cell=(name, "add /s")) for name, value in per_s.items()]
    return found + notifications(ground)


def against(rates: dict[str, list[float]], way: str, what: str) -> Finding:
    ratios = [a / b for a, b in zip(rates["add_many"], rates[way], strict=True)]
    detail = {"rounds": ratios, "per call": 1000}
    return Finding(
        f"add_many against {what}", statistics.median(ratios), "x", TO_COPY_MIN, at_least=True, detail=detail
    )


def added_per_s(ground: Ground, system: System, verb: str, count: int) -> float:
    with ground.databases.empty(system) as bench:
        return count / float(told(run_verb(system, bench.dsn, verb, str(count)))["secs"])


def measure_latency(ground: Ground) -> list[Finding]:
    systems = [OURS, BARE, *(ground.peers if ground.sizes.with_every_peer else ())]
    spans: dict[str, list[float]] = {system.name: [] for system in systems}
    for index in range(ground.sizes.rounds):
        for system in systems if index % 2 else systems[::-1]:
            ground.tell(f"latency, round {index + 1} of {ground.sizes.rounds}: {system.label}")
            spans[system.name] += probed_ms(ground, system, ground.sizes.probes // ground.sizes.rounds)
    ours = spans[OURS.name]
    detail = {"probes": len(ours), "max_ms": max(ours)}
    found = [
        Finding("single add to handler start, idle worker, p50", quantile(ours, 0.5), "ms", P50_MS_MAX, detail=detail),
        Finding("single add to handler start, idle worker, p99", quantile(ours, 0.99), "ms", P99_MS_MAX, detail=detail),
    ]
    for column, share in {"latency p50 ms": 0.5, "p99 ms": 0.99}.items():
        found += [
            Finding(f"{s.label}: {column}", quantile(spans[s.name], share), cell=(s.label, column)) for s in systems
        ]
    return found


def probed_ms(ground: Ground, system: System, probes: int) -> list[float]:
    with ground.databases.empty(system) as bench, workers(system, bench.dsn, "lat") as (worker,):
        ground.databases.settle()  # what earlier parts wrote must not be flushed under a single commit of this one
        spans: list[float] = told(run_verb(system, bench.dsn, "latency", str(probes), str(worker.path)))["total_ms"]
        worker.stop()
    return spans


def notifications(ground: Ground) -> list[Finding]:
    """Heard by a session that listens; equal ones of one transaction arrive as one, so triggers are looked for too."""
    with ground.databases.empty(OURS) as bench, psycopg.connect(bench.dsn, autocommit=True) as listener:
        listener.execute(f"LISTEN {TABLE}".encode())
        asyncio.run(add(bench.dsn, SINGLE_ADDS, 1))
        single = heard(listener)
        asyncio.run(add(bench.dsn, 1, 1000))
        many = heard(listener)
        row = listener.execute(
            "SELECT count(*) FROM pg_trigger WHERE tgrelid = %s::regclass AND NOT tgisinternal AND tgtype & 1 = 1",
            [TABLE],
        ).fetchone()
    assert row is not None, "a count"
    return [
        Finding("notifications per single add", single / SINGLE_ADDS, "", 1),
        Finding("notifications per add_many of 1000", many, "", 1),
        Finding("triggers for each row", row[0], "", 0),
    ]


async def add(dsn: str, calls: int, each: int) -> None:
    async with fencehold.connect(dsn) as store:
        outbox = store.outbox(TABLE)
        events: list[tuple[str, Any]] = [(EVENT_TYPE, {"i": i}) for i in range(each)]
        for _ in range(calls):
            await (outbox.add_many(events) if each > 1 else outbox.add(*events[0]))


def heard(listener: psycopg.Connection[Any]) -> int:
    return sum(1 for _ in listener.notifies(timeout=HEARD_LIMIT_S))
