"""Real contenders, started, told, killed and frozen; and the ledger they wrote."""

import asyncio
import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import fencehold
from tests.across_packages.contender import TABLES
from tests.servers import freezing

ROOT = Path(__file__).parents[2]
EVENT_LIMIT_S = 30.0


class Process:
    """One contender; `wait_for` waits for an event it tells, never for a time."""

    def __init__(self, url: str, name: str, holder: str, *options: str) -> None:
        self._launch(holder, "tests.across_packages.contender", url, name, "--holder", holder, *options)

    def _launch(self, holder: str, *module_and_arguments: str, env: dict[str, str] | None = None) -> None:
        command = [sys.executable, "-m", *module_and_arguments]
        self.holder = holder
        self.events: list[dict[str, Any]] = []
        self._arrived: queue.Queue[dict[str, Any]] = queue.Queue()
        self._child = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT,
            env={**os.environ, **(env or {})},
        )  # fmt: skip
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self._child.stdout is not None
        for line in self._child.stdout:
            self._arrived.put(json.loads(line))
        self._arrived.put({"event": "eof"})

    def wait_for(self, event: str, **fields: Any) -> dict[str, Any]:
        """The next event of this kind with these fields; earlier ones are passed over."""
        while True:
            try:
                told = self._arrived.get(timeout=EVENT_LIMIT_S)
            except queue.Empty:
                raise AssertionError(f"{self.holder} never told {event} {fields}; it told {self.events}") from None
            self.events.append(told)
            if told["event"] == event and fields.items() <= told.items():
                return told
            assert told["event"] != "eof", f"{self.holder} ended: {self._child.stderr and self._child.stderr.read()}"

    def say(self, *words: str) -> None:
        assert self._child.stdin is not None
        self._child.stdin.write(" ".join(words) + "\n")
        self._child.stdin.flush()

    def freeze(self, url: str = "") -> None:
        """With the address of a SQLite file: at a moment at which it is not being written by this process."""
        freezing.freeze(self._child.pid, url)

    def thaw(self) -> None:
        self._child.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        self._child.kill()
        self._child.wait()

    def stop(self) -> None:
        self.say("stop")
        assert self._child.wait(EVENT_LIMIT_S) == 0, self._child.stderr and self._child.stderr.read()


@contextmanager
def contenders(url: str, name: str = "job") -> Iterator[Any]:
    """Starts contenders; none outlives the block, frozen or not."""
    started: list[Process] = []

    def start(holder: str, *options: str, at: str = url) -> Process:
        started.append(Process(at, name, holder, *options))
        return started[-1]

    try:
        yield start
    finally:
        for process in started:
            process.kill()


async def prepare(url: str) -> None:
    """The lease tables and a ledger that numbers accepted writes in commit order."""
    async with fencehold.connect(url) as store:
        await store.init()
        lease = await store.leases.acquire("prepare", "prepare", 60)
        assert lease is not None
    await execute(url, "CREATE TABLE " + TABLES[url.partition(":")[0]])
    await execute(url, "CREATE TABLE target (id int PRIMARY KEY, value text, epoch bigint)")
    await execute(url, "INSERT INTO target VALUES (1, 'first', 0)")


async def execute(url: str, sql: str) -> list[tuple[Any, ...]]:
    if url.startswith("sqlite"):
        import sqlite3

        with sqlite3.connect(url.removeprefix("sqlite:///"), timeout=30) as connection:
            return connection.execute(sql).fetchall()
    if url.startswith("mssql"):
        return await asyncio.to_thread(_execute_on_sql_server, url, sql)
    import psycopg

    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as pg:
        cursor = await pg.execute(sql.encode())
        return await cursor.fetchall() if cursor.description else []


def _execute_on_sql_server(url: str, sql: str) -> list[tuple[Any, ...]]:
    from tests.servers.sqlserver import open_connection

    connection = open_connection(url)
    try:
        cursor = connection.cursor().execute(sql)
        return [tuple(row) for row in cursor.fetchall()] if cursor.description else []
    finally:
        connection.close()


async def ledger(url: str) -> list[tuple[str, int, str]]:
    rows = await execute(url, "SELECT holder, epoch, value FROM ledger ORDER BY place")
    return [(row[0], row[1], row[2]) for row in rows]
