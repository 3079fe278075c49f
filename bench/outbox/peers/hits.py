"""What every system under measurement shares; standard library only, so that it works in any environment.

Each script offers the same verbs and takes its database from $BENCH_DSN:
  setup              create the schema
  enqueue N          add N no-op jobs by the best public way, told as {"secs": ...}
  worker MODE        work until SIGTERM; MODE is c10, best or lat; the handler calls hit()
  latency N FILE     add one job at a time beside a worker that counts in FILE, told as {"total_ms": [...], ...}
  fill N             put N finished jobs into the tables
  unfinished         print the SQL that counts unfinished jobs
"""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import random
import signal
import struct
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

DSN = os.environ.get("BENCH_DSN", "")
BATCH = os.environ.get("BENCH_BATCH")
ADDED_AT_ONCE = 1000
_COUNT_FIRST_LAST = struct.Struct("<Qdd")
_FILE_BYTES = 64
_WARM = 10
_PICKED_UP_LIMIT_S = 30.0
_PR_SET_PDEATHSIG = 1

if sys.platform == "linux" and DSN:
    # A run that was killed must not leave workers behind that poll for ever.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


class Hits:
    """How many handlers started in one process, the first and the last when; in a file that the run reads meanwhile."""

    def __init__(self, path: str) -> None:
        with open(path, "r+b") as file:
            self._map = mmap.mmap(file.fileno(), _FILE_BYTES)

    @classmethod
    def new(cls, path: str) -> Hits:
        with open(path, "wb") as file:
            file.write(bytes(_FILE_BYTES))
        return cls(path)

    def hit(self) -> None:
        now_s = time.time()
        count, first_s, _ = _COUNT_FIRST_LAST.unpack_from(self._map)
        _COUNT_FIRST_LAST.pack_into(self._map, 0, count + 1, first_s or now_s, now_s)

    def read(self) -> tuple[int, float, float]:
        count, first_s, last_s = _COUNT_FIRST_LAST.unpack_from(self._map)
        return count, first_s, last_s


hit: Callable[[], None] = Hits(os.environ["BENCH_COUNTER"]).hit if "BENCH_COUNTER" in os.environ else lambda: None


def out(told: dict[str, Any]) -> None:
    print(json.dumps(told), flush=True)


def batches(count: int) -> list[range]:
    return [range(first, min(count, first + ADDED_AT_ONCE)) for first in range(0, count, ADDED_AT_ONCE)]


class LatencyProbe:
    """The producer: one job in flight, an idle worker. It sleeps without awaiting: nothing else may run here."""

    def __init__(self, path: str, count: int) -> None:
        self._hits, self._count = Hits(path), count
        self._spans: list[tuple[float, float]] = []

    def run_sync(self, add: Callable[[int], object]) -> None:
        for index in range(self._count + _WARM):
            before, called_s = self._hits.read()[0], time.time()
            add(index)
            self._note(before, called_s, time.time())
        self._report()

    async def run_async(self, add: Callable[[int], Awaitable[object]]) -> None:
        for index in range(self._count + _WARM):
            before, called_s = self._hits.read()[0], time.time()
            await add(index)
            self._note(before, called_s, time.time())
        self._report()

    def _note(self, before: int, called_s: float, added_s: float) -> None:
        while True:
            count, _, started_s = self._hits.read()
            if count > before:
                break
            if time.time() > added_s + _PICKED_UP_LIMIT_S:
                raise SystemExit("latency: the job was not picked up in time")
            time.sleep(0.0003)
        self._spans.append((1000 * (started_s - called_s), 1000 * (added_s - called_s)))
        time.sleep(random.uniform(0.010, 0.030))

    def _report(self) -> None:
        spans = self._spans[_WARM:]
        out({"total_ms": [total for total, _ in spans], "enqueue_ms": [enqueue for _, enqueue in spans]})


def serve(verbs: dict[str, Callable[..., object]], unfinished: str) -> None:
    """Run the verb that the command line names; numbers become int."""
    verb, *words = sys.argv[1:]
    if verb == "unfinished":
        print(unfinished)
    else:
        verbs[verb](*(int(word) if word.isdigit() else word for word in words))
