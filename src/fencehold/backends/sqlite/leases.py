"""Named leases on SQLite: sets parameters, runs statements and turns rows into leases.

The rules are in the .sql files.
"""

from __future__ import annotations

import datetime as dt
import sqlite3
from collections.abc import Sequence
from typing import Any

from fencehold.backends.sql.statements import Statements
from fencehold.backends.sqlite.session import Session
from fencehold.model.election.rules import Ask, Lease, Refusal, TermKey, refusal_reason
from fencehold.ports.leases import Answer

Row = tuple[Any, ...]


class SqliteLeases:
    def __init__(self, session: Session, statements: Statements) -> None:
        self._session = session
        self._statements = statements

    async def acquire(self, ask: Ask, limit_s: float) -> Answer:
        params = {"name": ask.name, "holder": ask.holder_id, "lease": modifier(ask.lease_s), "nonce": ask.nonce}

        [(granted, row)] = await self._write("acquire", [params], limit_s)
        assert row is not None, "acquire leaves a row behind, ours or another's"
        mine = bool(ask.nonce) and (row.nonce, row.holder_id) == (ask.nonce, ask.holder_id)
        return row if granted or mine else Refusal("held", row)

    async def renew(self, keys: Sequence[TermKey], limit_s: float) -> list[Answer]:
        return await self._change("renew", keys, limit_s)

    async def release(self, keys: Sequence[TermKey], limit_s: float) -> list[Answer]:
        return await self._change("release", keys, limit_s)

    async def read(self, names: Sequence[str], limit_s: float) -> dict[str, Lease]:
        def work(connection: sqlite3.Connection) -> list[Row | None]:
            return [self._row(connection, name) for name in names]

        rows = await self._session.read(work, limit_s)
        return {found.name: found for found in (lease(row) for row in rows if row)}

    async def ask_step_down(self, name: str, epoch: int, limit_s: float) -> Answer:
        [answer] = await self._change("ask_step_down", [TermKey(name, "", epoch, 0.0)], limit_s)
        return answer

    async def _change(self, statement: str, keys: Sequence[TermKey], limit_s: float) -> list[Answer]:
        params = [
            {"name": key.name, "holder": key.holder_id, "epoch": key.epoch, "lease": modifier(key.lease_s)}
            for key in keys
        ]
        return [_answer(changed, row) for changed, row in await self._write(statement, params, limit_s)]

    async def _write(
        self, statement: str, batch: Sequence[dict[str, Any]], limit_s: float
    ) -> list[tuple[bool, Lease | None]]:
        """Run the statement once for each set of parameters in `batch`, all in one transaction.

        Return for each whether the statement changed the row, and the lease in the row after that; None if there is no
        row.
        """

        def work(connection: sqlite3.Connection) -> list[tuple[list[Row], Row | None]]:
            return [
                (
                    connection.execute(self._statements[statement], params).fetchall(),
                    self._row(connection, params["name"]),
                )
                for params in batch
            ]

        done = await self._session.write(work, limit_s)
        return [(bool(changed), lease(row) if row else None) for changed, row in done]

    def _row(self, connection: sqlite3.Connection, name: str) -> Row | None:
        found: Row | None = connection.execute(self._statements["read"], {"name": name}).fetchone()
        return found

    async def list(self, prefix: str, limit_s: float) -> list[Lease]:
        def work(connection: sqlite3.Connection) -> list[Row]:
            return connection.execute(self._statements["list"], {"prefix": prefix}).fetchall()

        return [lease(row) for row in await self._session.read(work, limit_s)]


def _answer(changed: bool, row: Lease | None) -> Answer:
    if changed and row is not None:
        return row
    now = row.expires_at - dt.timedelta(seconds=row.remaining_s) if row else dt.datetime.min.replace(tzinfo=dt.UTC)
    return Refusal(refusal_reason(row, now), row)


def modifier(lease_s: float) -> str:
    """Return a number of seconds as the text that SQLite's date functions add to a time."""
    return f"+{lease_s:.3f} seconds"


def instant(text: str) -> dt.datetime:
    return dt.datetime.fromisoformat(text)


def lease(row: Row) -> Lease:
    name, holder, epoch, acquired, renewed, expires, now, step_down, nonce, lease_id = row
    remaining_s = (instant(expires) - instant(now)).total_seconds()
    times = instant(acquired), instant(renewed), instant(expires)
    return Lease(name, holder, epoch, *times, remaining_s, bool(step_down), nonce, lease_id)
