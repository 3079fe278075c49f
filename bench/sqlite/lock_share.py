"""The share of time the write lock is held, beside that of a plain loop of as many transactions on the same disk."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import fencehold
from bench.children import Child, children
from bench.report import Finding, Tell
from bench.sizes import SqliteSizes
from bench.sqlite.write_lock import Held, watch
from bench.submission.ground import TARGET, create_tables, target
from bench.submission.processes import Gateway, Instance

STEADY = "bench.sqlite.steady"
SETTLE_S = 1.5
ROWS = 1000
TIMES_PLAIN_MAX = 3.0
RAM_DISK = "/dev/shm"

Start = Callable[..., Child]
Run = Callable[[Path, float, float], Held]


def of_service(sizes: SqliteSizes, tell: Tell) -> list[Finding]:
    """Three commits an intent: submitted, started, recorded."""
    return compared("service", f"{sizes.intents_per_s:g} intents/s", sizes.intents_per_s, sizes, tell, service)


def of_outbox(sizes: SqliteSizes, tell: Tell) -> list[Finding]:
    """At most three commits an event: added, claimed, completed; a worker takes several at once."""
    return compared("outbox", f"{sizes.events_per_s:g} events/s", sizes.events_per_s, sizes, tell, outbox)


def compared(what: str, load: str, per_s: float, sizes: SqliteSizes, tell: Tell, ours: Run) -> list[Finding]:
    """On the disk, where commits take most of the time, and on a RAM disk, where what is left is our own."""
    found = []
    for place in [None, RAM_DISK] if Path(RAM_DISK).is_dir() else [None]:
        seen: dict[str, list[Held]] = {what: [], "plain loop": []}
        for index in range(sizes.rounds):
            for name in list(seen) if index % 2 else reversed(list(seen)):
                tell(f"write lock of SQLite, {load}, round {index + 1} of {sizes.rounds}: {name}")
                with tempfile.TemporaryDirectory(dir=place) as folder:
                    run = ours if name == what else bare
                    seen[name].append(run(Path(folder), per_s, sizes.watch_s))
        found += findings(what, load, "a RAM disk" if place else "the disk", seen)
    return found


def findings(what: str, load: str, where: str, seen: dict[str, list[Held]]) -> list[Finding]:
    ratios = [one.share / other.share for one, other in zip(seen[what], seen["plain loop"], strict=True)]
    name = f"SQLite's write lock on {where}, {load}: time the {what} holds it against a plain loop"
    limit = TIMES_PLAIN_MAX if where == "the disk" else None
    return [
        Finding(name, statistics.median(ratios), "x", limit, detail={"rounds": ratios}),
        *(printed(who, rounds) for who, rounds in seen.items()),
    ]


def printed(who: str, rounds: list[Held]) -> Finding:
    share = 100 * statistics.median(one.share for one in rounds)
    detail = {"longest_ms": max(one.longest_ms for one in rounds), "holds": sum(len(one.holds_s) for one in rounds)}
    return Finding(f"  {who}, share of the time", share, "%", detail=detail)


def bare(folder: Path, per_s: float, watch_s: float) -> Held:
    path = folder / "bare.db"
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("CREATE TABLE bare (id INTEGER PRIMARY KEY, a INTEGER)")
        connection.executemany("INSERT INTO bare VALUES (?, 0)", ((number,) for number in range(ROWS)))
        connection.commit()
    with children() as start:
        started(start, "bare", str(path), str(per_s))
        return settled(path, watch_s)


def outbox(folder: Path, per_s: float, watch_s: float) -> Held:
    path = folder / "outbox.db"

    async def init() -> None:
        async with fencehold.connect(f"sqlite:///{path}") as store:
            store.outbox()
            await store.init()

    asyncio.run(init())
    with children() as start:
        started(start, "worker", str(path))
        started(start, "events", str(path), str(per_s))
        return settled(path, watch_s)


def service(folder: Path, per_s: float, watch_s: float) -> Held:
    path, registry = folder / "service.db", folder / "registry.json"
    asyncio.run(create_tables(f"sqlite:///{path}"))
    with children() as start, gateway() as url:
        registry.write_text(json.dumps({"targets": [target(url)]}))
        instance = Instance("bench", f"sqlite:///{path}", registry, {})
        try:
            instance.wait_for("serving")
            started(start, "intents", instance.url, str(per_s), TARGET)
            return settled(path, watch_s)
        finally:
            instance.kill()


@contextlib.contextmanager
def gateway() -> Iterator[str]:
    one = Gateway()
    try:
        yield one.url
    finally:
        one.kill()


def started(start: Start, *words: str) -> None:
    start(STEADY, *words).wait_for("ready")


def settled(path: Path, watch_s: float) -> Held:
    time.sleep(SETTLE_S)
    return watch(str(path), watch_s)
