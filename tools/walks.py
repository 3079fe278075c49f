"""Which files a few everyday calls pass through: a measure of how far a reader has to go. Run by hand.

usage: PYTHONPATH=src python tools/walks.py POSTGRES_URL [-v]        the URL of a scratch database; -v names the files

Counted are the files of runtime/ and backends/ that calls on any thread passed through, from the first to the last:
connections that open on the way count, what was set up before does not. Functions and changes of file are of the whole
package. The last line compares `add(tx=)` with and without an event loop, in turn and each after a first call that
reads the statements. What is left to shorten, and why: docs/decisions/0037.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import sys
import tempfile
import threading
import time
from collections import Counter
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import Any

SRC = str(Path(__file__).parents[1] / "src") + "/"
sys.path.insert(0, SRC)

import fencehold  # noqa: E402
import fencehold.sync  # noqa: E402

ROUNDS, ADDS = 3, 1000


class Walk:
    """The functions that were called, on every thread, between `begin` and `end`."""

    def __init__(self) -> None:
        self.is_on = False
        self.steps: list[tuple[str, str]] = []  # file and function
        threading.setprofile(self._seen)
        sys.setprofile(self._seen)

    def _seen(self, frame: FrameType, event: str, _: Any) -> None:
        name = frame.f_code.co_filename
        if self.is_on and event == "call" and name.startswith(SRC):
            self.steps.append((name.removeprefix(SRC), frame.f_code.co_qualname))

    def begin(self) -> None:
        self.steps, self.is_on = [], True

    def end(self, title: str) -> None:
        self.is_on = False
        calls = Counter(name for name, _ in self.steps)
        inner = sorted(name for name in calls if "/runtime/" in name or "/backends/" in name)
        changes = sum(before[0] != after[0] for before, after in pairwise(self.steps))
        print(
            f"{title}: {len(inner)} files of runtime and backends, {len(calls)} in all; "
            f"{len(set(self.steps))} functions, {changes} changes of file"
        )
        if "-v" in sys.argv:
            print(*(f"    {name} ({calls[name]} calls)" for name in inner), sep="\n")

    def off(self) -> None:
        threading.setprofile(None)
        sys.setprofile(None)


async def leader(walk: Walk, url: str) -> None:
    async with fencehold.connect(url) as store:
        await store.init()
        walk.begin()
        candidate = store.leader("walk", lease=3)
        await candidate.start()
        await candidate.wait_for_leadership()
        walk.end("leader until granted")
        await candidate.shutdown()


async def worker(walk: Walk, url: str) -> None:
    async with fencehold.connect(url) as store:
        outbox = store.outbox("outbox", lease=30)
        await store.init()
        await outbox.add("walked", 1)

        async def handle(event: fencehold.Event) -> None:
            one.stop()

        walk.begin()
        one = outbox.worker(handle)
        await one.run()
        walk.end("worker: claim, handle, complete, stop")


async def items(walk: Walk, folder: str) -> None:
    async with fencehold.connect(f"sqlite:///{folder}/items.db") as store:
        kind = store.items("kind")
        await store.init()
        await kind.put("1", state="NEW", document={})
        walk.begin()
        for item in await kind.next_for_state("NEW"):
            async with item:
                await item.save(state="DONE")
        walk.end("items: next_for_state and save")


async def async_add_s(folder: str) -> float:
    url = f"sqlite:///{folder}/async.db"
    async with fencehold.connect(url) as store:
        outbox = store.outbox("outbox")
        await store.init()
        with contextlib.closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as conn:
            for number in range(ADDS + 1):
                if number == 1:
                    began_s = time.perf_counter()
                conn.execute("BEGIN IMMEDIATE")
                await outbox.add("added", 1, tx=conn)
                conn.rollback()
            return (time.perf_counter() - began_s) / ADDS


def sync_add_s(folder: str) -> float:
    url = f"sqlite:///{folder}/sync.db"
    with fencehold.sync.connect(url) as store:
        outbox = store.outbox("outbox")
        store.init()
        with contextlib.closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as conn:
            for number in range(ADDS + 1):
                if number == 1:
                    began_s = time.perf_counter()
                conn.execute("BEGIN IMMEDIATE")
                outbox.add("added", 1, tx=conn)
                conn.rollback()
            return (time.perf_counter() - began_s) / ADDS


def main() -> None:
    walk = Walk()
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(leader(walk, sys.argv[1]))
        asyncio.run(worker(walk, sys.argv[1]))
        asyncio.run(items(walk, folder))
        walk.off()
        rounds = [(asyncio.run(async_add_s(folder)), sync_add_s(folder)) for _ in range(ROUNDS)]
    with_loop_s, without_s = map(min, zip(*rounds, strict=True))
    print(
        f"add(tx=): {1000 * with_loop_s:.3f} ms with an event loop, {1000 * without_s:.3f} ms without: "
        f"{without_s / with_loop_s:.2f} x (best of {ROUNDS})"
    )


if __name__ == "__main__":
    main()
