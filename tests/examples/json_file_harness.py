"""The toy backend of the examples: one JSON file, on a clock of the test's own."""

import contextlib
import datetime as dt
import fcntl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from examples.json_file_backend import JsonFileBackend, Now, machine_now
from fencehold.ports.backend import Backend
from fencehold.testing.harness import LEASE_TABLE, Can, Harness, Remote, Traits


def backend_for(path: str) -> Callable[[], Backend]:
    """For another process."""
    return lambda: JsonFileBackend(path)


class JsonFileHarness(Harness):
    traits = Traits(
        "JSON file",
        tick=dt.timedelta(microseconds=1),
        can={Can.LEASES, Can.PROCESSES, Can.OBSTRUCTION},
        walk_steps=1000,
    )

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = str(path)
        self._clock: Now = machine_now

    async def prepare(self) -> None:
        """Nothing: each test has a folder of its own, and `schema.init` makes the file."""

    def make(self, table: str = LEASE_TABLE) -> Backend:
        return JsonFileBackend(self.path, self._now)

    def _now(self) -> dt.datetime:
        return self._clock()

    async def set_clock(self, at: dt.datetime) -> None:
        self._clock = lambda: at

    async def shift_clock(self, ahead: dt.timedelta) -> None:
        self._clock = lambda: machine_now() + ahead

    @property
    def remote(self) -> Remote:
        return Remote(self.path, f"{__name__}:backend_for")

    @asynccontextmanager
    async def obstructed(self) -> AsyncIterator[None]:
        """Another open file has the lock."""
        with contextlib.closing(open(f"{self.path}.lock", "a", encoding="utf-8")) as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
