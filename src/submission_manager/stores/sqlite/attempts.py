"""Attempts on SQLite: each write is one call on one thread, because a pause inside a write blocks all other writers."""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Iterable
from typing import Any, TypeVar

from fencehold import Term
from fencehold.backends.sqlite.session import Session
from submission_manager.model.backlog import Backlog
from submission_manager.model.outcomes import OUTCOME_UNKNOWN
from submission_manager.ports import Over
from submission_manager.stores import rows
from submission_manager.stores.attempts import Attempts, Statement, Steps
from submission_manager.stores.dialect import Dialect

WRITE_LIMIT_S = 10.0

T = TypeVar("T")


class Refused(Exception):
    """Nothing was written; `args[0]` is the reason."""


class Unstorable(Exception):
    """A value is bad, not the database; `args[0]` is the driver's own error."""


class SqliteAttempts(Attempts):
    """Between BEGIN and COMMIT it never returns to the event loop, and calls nothing but SQLite and the rules."""

    def __init__(self, writer: Session, reader: Session, dialect: Dialect) -> None:
        super().__init__(dialect)
        self._writer = writer
        self._reader = reader

    async def owed_webhooks(self, limit: int, limit_s: float) -> list[Over]:
        def work(connection: sqlite3.Connection) -> list[Any]:
            return connection.execute(self._statements["owed"], {"limit": limit}).fetchall()

        return [rows.over(row, self._dialect) for row in await self._reader.read(work, limit_s)]

    async def backlog(self, late_s: int, rows_max: int, limit_s: float) -> Backlog:
        def work(connection: sqlite3.Connection) -> rows.Row:
            found = connection.execute(self._statements["backlog"], {"late_s": late_s, "limit": rows_max}).fetchall()
            return tuple(found[0])

        return rows.backlog(await self._reader.read(work, limit_s), self._dialect)

    def _ended(self, term: Term, ids: Iterable[str]) -> Steps[tuple[list[rows.Row], int]]:
        (now,) = yield Statement("clock", {}, has_row=True)  # one time for both: they must select the same intents
        params = {"ids": self._listed(ids), "epoch": term.epoch, "holder": term.holder_id, "now": now}
        unknown = yield Statement("expire_unknown", {**params, "error": OUTCOME_UNKNOWN}, has_rows=True)
        found = yield Statement("expire", params, has_rows=True)
        return found, len(unknown)

    def _listed(self, ids: Iterable[str]) -> Any:
        return json.dumps(list(ids))

    async def _fenced(self, term: Term, steps: Steps[T]) -> T:
        term.check()
        given_up = threading.Event()

        def work(connection: sqlite3.Connection) -> T:
            fence = {"name": term.name, "holder": term.holder_id, "epoch": term.epoch}
            if not connection.execute(self._statements["fence"], fence).fetchall():
                raise Refused("the store refused the fence: it has expired or another holds it")
            result = self._driven(connection, steps)
            if term.remaining_s <= 0:
                raise Refused("the term ended before the commit")
            if given_up.is_set():
                raise Refused("nobody waits for the answer any more")
            return result

        try:
            return await self._writer.write(work, min(term.remaining_s, WRITE_LIMIT_S))
        except Refused as error:
            raise term.lost(f"{error}; nothing was written") from None
        except Unstorable as error:
            raise error.args[0] from None
        finally:
            given_up.set()

    def _driven(self, connection: sqlite3.Connection, steps: Steps[T]) -> T:
        answer: Any = None
        try:
            while True:
                asked: Statement = steps.send(answer)
                found = connection.execute(self._statements[asked.name], asked.params).fetchall()
                answer = found if asked.has_rows else found[0] if found else None
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        except self._dialect.data_errors as error:
            raise Unstorable(error) from error
