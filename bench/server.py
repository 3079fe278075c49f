"""The PostgreSQL under measurement: one of our own with default durability, or the one BENCH_DSN names."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, urlsplit

from tests.servers.postgres import GivenServer, PostgresServer, binaries_of, fresh_database

#: Which session (application_name) ended which statement when (seconds since 1970).
_PREFIX = "%n %a | "
_STATEMENT = re.compile(r"^(?P<at>\d+\.\d+) (?P<who>\S*) \| LOG:  duration: (?P<ms>[\d.]+) ms  (statement|execute)")
_LOGGED = "-c log_min_duration_statement=0 -c log_parameter_max_length=0"


@dataclass(frozen=True)
class Statement:
    """One statement as the server logged it."""

    who: str
    ended_at_s: float
    took_ms: float


class Bench:
    """One empty database for the run; `log` is None on a given server, where statements cannot be counted."""

    def __init__(self, dsn: str, log: Path | None, version: int) -> None:
        self.dsn = dsn
        self.version = version
        self._log = log

    def dsn_of(self, who: str, *, logged: bool = False) -> str:
        """The address for the process `who`, each of whose statements the server logs if so asked."""
        options = f"&options={quote(_LOGGED)}" if logged and self._log else ""
        return f"{self.dsn}{'&' if '?' in self.dsn else '?'}application_name={who}{options}"

    @property
    def database(self) -> str:
        return urlsplit(self.dsn).path.removeprefix("/")

    def beside(self, database: str) -> Bench:
        """Another database of the same server."""
        return Bench(urlsplit(self.dsn)._replace(path=f"/{database}").geturl(), self._log, self.version)

    @property
    def counts_statements(self) -> bool:
        return self._log is not None

    def mark(self) -> int:
        """A place in the log, from which to count."""
        return self._log.stat().st_size if self._log else 0

    def statements(self, since: int) -> Iterator[Statement]:
        """Those that ended between the mark and now; read line by line, since a log may be large."""
        assert self._log is not None, "only a server of our own has a log to read"
        end = self.mark()
        with self._log.open("rb") as file:
            file.seek(since)
            for line in file:
                if file.tell() > end:
                    return
                if match := _STATEMENT.match(line.decode("utf-8", "replace")):
                    yield Statement(match["who"], float(match["at"]), float(match["ms"]))


@contextmanager
def bench_server() -> Iterator[Bench]:
    if given := os.environ.get("BENCH_DSN"):
        there = GivenServer(given)
        with fresh_database(there) as dsn:
            yield Bench(dsn, None, there.version)
        return
    server = PostgresServer.of(binaries_of())
    server.settings["log_line_prefix"] = _PREFIX
    try:
        server.start()
        with fresh_database(server) as dsn:
            yield Bench(dsn, server.log, server.version)
    finally:
        server.close()
