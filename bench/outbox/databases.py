"""Databases beside the run's own, on the same server: a system's tables are loaded once and copied for each drain."""

from __future__ import annotations

import json
import os
import subprocess
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg import sql

from bench.children import ROOT
from bench.outbox.systems import System
from bench.server import Bench

VERB_LIMIT_S = 600.0
IN_USE_LIMIT_S = 10.0


def run_verb(system: System, dsn: str, *words: str, **environment: str) -> str:
    """What the system's script printed."""
    done = subprocess.run(
        [*system.command, *words], env=system.environ(dsn, **environment), cwd=ROOT, capture_output=True, text=True,
        timeout=VERB_LIMIT_S, check=False,
    )  # fmt: skip
    if done.returncode:
        raise RuntimeError(f"{system.label}: {' '.join(words)} failed:\n{done.stderr[-2000:]}")
    return done.stdout.strip()


class Databases:
    """Every database made here is dropped at the end."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._admin = psycopg.connect(bench.dsn_of("bench-admin"), autocommit=True)
        self._loaded: dict[tuple[Any, ...], Bench] = {}
        self._unfinished: dict[str, str] = {}

    def close(self) -> None:
        for bench in self._loaded.values():
            self._drop(bench)
        self._admin.close()

    def loaded(self, system: System, pending: int, *, finished: int = 0, analyzed: bool = True) -> Bench:
        """One with this much in it, made at the first call; never worked on itself, only copied."""
        key = (system.command, pending, finished, analyzed)
        if key not in self._loaded:
            made = self._create("template1")
            try:
                load(system, made, pending, finished, analyzed=analyzed)
            except BaseException:
                self._drop(made)
                raise
            self._loaded[key] = made
        return self._loaded[key]

    def settle(self) -> None:
        """Everything written so far is on the disk when this returns."""
        self._admin.execute("CHECKPOINT")
        os.sync()

    @contextmanager
    def copy(self, source: Bench) -> Iterator[Bench]:
        made = self._create(source.database)
        try:
            yield made
        finally:
            self._drop(made)

    @contextmanager
    def empty(self, system: System) -> Iterator[Bench]:
        """Its tables, with nothing in them."""
        with self.copy(self.loaded(system, 0)) as made:
            yield made

    def unfinished(self, system: System) -> str:
        """The query that counts what is not finished."""
        if system.name not in self._unfinished:
            self._unfinished[system.name] = run_verb(system, self._bench.dsn, "unfinished")
        return self._unfinished[system.name]

    def wal_bytes(self) -> int:
        """Written by the whole server so far."""
        return int(self._value("SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn"))

    def commits(self, bench: Bench) -> int:
        """Exact once the sessions that committed have ended."""
        return int(self._value("SELECT xact_commit FROM pg_stat_database WHERE datname = %s", bench.database))

    def sessions(self, bench: Bench) -> int:
        return int(self._value("SELECT count(*) FROM pg_stat_activity WHERE datname = %s", bench.database))

    def _value(self, query: str, *params: str) -> Any:
        row = self._admin.execute(query.encode(), params).fetchone()
        assert row is not None, "one row each"
        return row[0]

    def _create(self, source: str) -> Bench:
        name = f"b_{uuid.uuid4().hex[:12]}"
        # WAL_LOG: a copy of files would begin and end with a checkpoint, and then every page is logged in full.
        statement = sql.SQL("CREATE DATABASE {} TEMPLATE {} STRATEGY wal_log").format(
            sql.Identifier(name), sql.Identifier(source)
        )
        give_up_at_s = time.monotonic() + IN_USE_LIMIT_S
        while True:
            try:
                self._admin.execute(statement)
                return self._bench.beside(name)
            except psycopg.errors.ObjectInUse:  # a session of the script that loaded it is still ending
                if time.monotonic() > give_up_at_s:
                    raise
                time.sleep(0.1)

    def _drop(self, bench: Bench) -> None:
        self._admin.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(bench.database)))


def load(system: System, bench: Bench, pending: int, finished: int, *, analyzed: bool) -> None:
    run_verb(system, bench.dsn, "setup")
    if finished:
        run_verb(system, bench.dsn, "fill", str(finished))
    if pending:
        run_verb(system, bench.dsn, "enqueue", str(pending))
    if analyzed:
        # Also keeps autovacuum away from it for the rest of the run.
        with psycopg.connect(bench.dsn, autocommit=True) as connection:
            connection.execute("VACUUM (ANALYZE)")


def told(printed: str) -> dict[str, Any]:
    """The last line a verb printed, as it was told."""
    found: dict[str, Any] = json.loads(printed.splitlines()[-1])
    return found
