"""A wall clock that a test sets, for one process and its children (libfaketime). Monotonic clocks stay as they are."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from pathlib import Path

from tests.servers.postgres import PostgresServer
from tests.servers.programs import Missing, find, reason

LIBRARY = "libfaketimeMT.so.1"


class FakedClock:
    """`environment` makes a process believe in it; `step` sets it, for those that run already too."""

    def __init__(self, folder: Path) -> None:
        program = find("faketime")
        found = next(iter(sorted(Path("/usr/lib").glob(f"*/faketime/{LIBRARY}"))), None)
        if program is None or found is None:
            raise Missing("faketime", reason("faketime"))
        self._file = folder / "clock"
        self._file.write_text("+0")
        self._file.chmod(0o644)
        self.environment = {
            "LD_PRELOAD": str(found),
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "DONT_FAKE_MONOTONIC": "1",
        }

    def step(self, by: dt.timedelta) -> None:
        """From now on it shows the real time plus `by`."""
        new = self._file.with_suffix(".new")
        new.write_text(f"{by.total_seconds():+.0f}")
        new.chmod(0o644)
        new.replace(self._file)


class FakedServer(PostgresServer):
    """A server that believes in a clock of its own."""

    clock: FakedClock | None = None

    def environment(self) -> Mapping[str, str]:
        return {**super().environment(), **(self.clock.environment if self.clock else {})}
