"""Fenced writes with the key of a term alone: only the database decides whether they are accepted.

The library's own clock would refuse a late write before it is sent, and so hide a fence that does not work. The
statements of a run are in .sql files: `{schema}.` is replaced by the run's schema, `:parameters` are put into the
driver's style.
"""

from __future__ import annotations

import asyncio
import re
import secrets
import sqlite3
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, closing
from functools import partial
from importlib import resources
from typing import Any, Protocol
from urllib.parse import unquote

from fencehold.backends.sql.statements import named, pyformat
from fencehold.model.election.rules import TermKey
from fencehold.model.errors import LeaseLost
from fencehold.ports.backend import Backend
from fencehold.ports.fence import Transaction
from fencehold.ports.time_limit import fixed
from fencehold.testing.history import boottime_s
from fencehold.verify.messages import tell_write

_SCHEMA = re.compile(r"[a-z_][a-z0-9_]*", re.ASCII)


class RunStatements:
    """The SQL statements of one dialect for one schema. `statements[name]` is the statement in the file `name.sql`."""

    def __init__(self, dialect: str, schema: str = "") -> None:
        assert not schema or _SCHEMA.fullmatch(schema), "the run chose its name itself"
        self._style: Callable[[str], str] = pyformat if dialect == "postgres" else named
        folder = resources.files(__package__) / "sql" / dialect
        files = {file.name.removesuffix(".sql"): file.read_text("utf-8") for file in folder.iterdir()}
        self._texts = {name: text.replace("{schema}", f'"{schema}"') for name, text in files.items()}

    def __getitem__(self, name: str) -> str:
        lines = (line for line in self._texts[name].splitlines() if not line.startswith("--"))
        return self._style("\n".join(lines).strip().removesuffix(";"))

    def script(self, name: str) -> str:
        """Return a file of several statements as one text, which has no parameters."""
        return self._texts[name]


Stand = Callable[[], Awaitable[None]]
Step = tuple[str, dict[str, Any]]
Begin = Callable[[], AbstractAsyncContextManager[Transaction]]


async def straight_on() -> None:
    """Return at once: the default for `fenced` and `written`, for a write that must not stand still."""


class Side(Protocol):
    """A connection to the database that is the user's own, not the library's."""

    async def change(self, steps: Sequence[Step], limit_s: float) -> bool:
        """Run all steps in one transaction.

        Commits and returns True only if the first step changed a row; else returns False.
        """


class Writer:
    """Adds a line to the run's log table and 1 to the counter of a lease, in one fenced transaction."""

    def __init__(self, backend: Backend, statements: RunStatements, side: Side, limit_s: float) -> None:
        self._backend, self._statements, self._side, self._limit_s = backend, statements, side, limit_s

    async def write(self, key: TermKey, fenced: Stand = straight_on, written: Stand = straight_on) -> bool | None:
        """Write in a fenced transaction. Returns True: committed; False: refused; None: no answer, so it may be either.

        `fenced` is awaited when the fence is taken, `written` after the statements, before the commit.
        """
        until_s = boottime_s() + self._limit_s
        begin = partial(self._backend.fences.transaction, key, lambda: until_s - boottime_s())
        return await self.write_in(begin, key, fenced, written)

    async def write_in(
        self, begin: Begin, key: TermKey, fenced: Stand = straight_on, written: Stand = straight_on
    ) -> bool | None:
        """Write in the fenced transaction that `begin` opens; arguments and result are those of `write`."""
        write_id = secrets.token_hex(8)
        outcome: bool | None = None
        try:
            async with begin() as tx:
                await fenced()
                for text, params in self.steps(key, write_id):
                    await tx.execute(text, params)
                await written()
            outcome = True
        except LeaseLost:
            outcome = False
        except Exception:  # noqa: BLE001 - whatever the driver says: it may have been committed
            await asyncio.sleep(0)
        finally:
            tell_write(write_id, key.name, key.epoch, outcome)
        return outcome

    async def write_guarded(self, key: TermKey) -> bool | None:
        """Write by `guard()`: the lease is a condition in the caller's own statement on the caller's own connection.

        Returns True: committed; False: refused; None: no answer, so it may be either.
        """
        write_id = secrets.token_hex(8)
        guard = self._backend.fences.guard(key)
        (count, params), note = self.steps(key, write_id)
        outcome: bool | None
        try:
            guarded = (f"{count} AND {guard.sql}", {**params, **guard.params})
            outcome = await self._side.change([guarded, note], self._limit_s)
        except Exception:  # noqa: BLE001
            outcome = None
        tell_write(write_id, key.name, key.epoch, outcome)
        return outcome

    def steps(self, key: TermKey, write_id: str) -> tuple[Step, Step]:
        counter = {"counter": key.name}
        note = {**counter, "holder": key.holder_id, "epoch": key.epoch, "write_id": write_id}
        return (self._statements["count"], counter), (self._statements["note"], note)


class SqliteSide:
    def __init__(self, path: str) -> None:
        self._path = path

    async def change(self, steps: Sequence[Step], limit_s: float) -> bool:
        return await asyncio.to_thread(self._change, steps, limit_s)

    def _change(self, steps: Sequence[Step], limit_s: float) -> bool:
        with closing(sqlite3.connect(self._path, timeout=limit_s, isolation_level=None)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            for number, (text, params) in enumerate(steps):
                if connection.execute(text, params).rowcount != 1 and number == 0:
                    connection.execute("ROLLBACK")
                    return False
            connection.execute("COMMIT")
        return True


class PostgresSide:
    def __init__(self, url: str) -> None:
        from fencehold.backends.postgres import wire

        self._wire = wire
        self._info = wire.conninfo(url)

    async def change(self, steps: Sequence[Step], limit_s: float) -> bool:
        wire = self._wire
        left_s = fixed(limit_s)
        connection = await wire.connect(self._info, limit_s, autocommit=False)
        with wire.lent(connection):
            for number, (text, params) in enumerate(steps):
                cursor = await wire.bounded(connection, connection.execute(text.encode(), params), left_s)
                if number == 0 and cursor.rowcount != 1:
                    return False
            await wire.bounded(connection, connection.commit(), left_s)
        return True


def side_of(dialect: str, url: str) -> Side:
    return PostgresSide(url) if dialect == "postgres" else SqliteSide(sqlite_path(url))


def sqlite_path(url: str) -> str:
    return unquote(url.partition("://")[2].partition("?")[0].removeprefix("/"))
