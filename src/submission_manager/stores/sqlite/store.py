"""The service's store on SQLite: one thread for submissions, one for attempts, and one for reads."""

from __future__ import annotations

import datetime as dt
import json
import os
import sqlite3
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from functools import partial
from typing import Any

from fencehold import Term
from fencehold.backends.sqlite import faults
from fencehold.backends.sqlite.schema import SqliteSchema
from fencehold.backends.sqlite.session import Session
from submission_manager.model.intents import Attempt, Intent, NewIntent, Status
from submission_manager.ports import Cursor, Due, LeftOpen, Page, Progress, Submitted
from submission_manager.stores import rows
from submission_manager.stores.dialect import Dialect
from submission_manager.stores.gathering import Gathering
from submission_manager.stores.sqlite.attempts import SqliteAttempts
from submission_manager.stores.statements import TABLE, StoreStatements

INIT_LIMIT_S = 60.0
START = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)

Rows = list[tuple[Any, ...]]


class SqliteStore:
    def __init__(self, path: str) -> None:
        statements = StoreStatements("sqlite", "fencehold.backends.sqlite")
        fault = partial(faults.of_statement, path=path)
        data_errors = (sqlite3.DataError, sqlite3.IntegrityError)
        dialect = Dialect(statements, dt.datetime.fromisoformat, stamp, sqlite3.Error, data_errors, fault)
        self._writer = Session(path, "submissions-write")
        self._executor = Session(path, "submissions-attempts")
        self._reader = Session(path, "submissions-read")
        self._schema = SqliteSchema(self._writer, statements)
        self.intake = SqliteIntake(self._writer, self._reader, dialect)
        self.schedule = SqliteSchedule(self._reader, dialect)
        self.attempts = SqliteAttempts(self._executor, self._reader, dialect)

    async def open(self) -> None:
        """Does nothing: the file may not exist before init(), and every call opens it when needed."""

    async def init(self) -> list[str]:
        return await self._schema.init(INIT_LIMIT_S)

    def script(self) -> str:
        return self._schema.script()

    async def close(self) -> None:
        await self.intake.close()
        await self._writer.close()
        await self._executor.close()
        await self._reader.close()


class SqliteIntake:
    def __init__(self, writer: Session, reader: Session, dialect: Dialect) -> None:
        self._writer = writer
        self._reader = reader
        self._dialect = dialect
        self._statements = dialect.statements
        self._gathering = Gathering(self._store_batch, lanes=1)

    async def submit(self, new: NewIntent, limit_s: float) -> Submitted:
        rows.check_id(new.intent_id)
        return await self._gathering.submit(new, limit_s)

    async def _store_batch(self, batch: list[NewIntent], limit_s: float) -> list[Submitted]:
        params = [_submit_params(new) for new in batch]

        def work(connection: sqlite3.Connection) -> tuple[list[Rows], Rows]:
            stored = [connection.execute(self._statements["submit"], one).fetchall() for one in params]
            ids = [one["id"] for one, found in zip(params, stored, strict=True) if not found]
            if not ids:
                return stored, []
            return stored, connection.execute(self._statements["submitted"], {"ids": json.dumps(ids)}).fetchall()

        stored, there = await self._writer.write(work, limit_s)
        before = {row[0]: row for row in there}
        return [
            rows.created(new, found[0][1], self._dialect)
            if found
            else rows.known(new, before[new.intent_id], self._dialect)
            for new, found in zip(batch, stored, strict=True)
        ]

    async def repeated(self, intent_id: str, target: str, payload: bytes | None, limit_s: float) -> Intent | None:
        found = await self._fetch("submitted", {"ids": json.dumps([intent_id])}, limit_s)
        same = [row for row in found if rows.is_repeat(target, payload, row, self._dialect)]
        return rows.intent(same[0], self._dialect) if same else None

    async def read(self, intent_id: str, limit_s: float) -> Intent | None:
        found = await self._fetch("read", {"id": intent_id}, limit_s)
        return rows.intent(found[0], self._dialect) if found else None

    async def history(self, intent_id: str, limit_s: float) -> tuple[Intent, list[Attempt]] | None:
        return rows.history(await self._fetch("history", {"id": intent_id}, limit_s), self._dialect)

    async def progress(self, intent_ids: Sequence[str], limit_s: float) -> list[Progress]:
        found = await self._fetch("progress", {"ids": json.dumps(list(intent_ids))}, limit_s)
        return [Progress(intent_id, Status(status), count) for intent_id, status, count in found]

    async def pending_counts(self, limit_s: float) -> Mapping[str, int]:
        return dict(await self._fetch("pending_counts", {}, limit_s))

    async def missing_tables(self, limit_s: float) -> list[str]:
        def work(connection: sqlite3.Connection) -> list[str]:
            missing = [row[0] for row in connection.execute(self._statements["missing"])]
            if missing:
                return missing
            steps = connection.execute(self._statements["steps_applied"], {"component": TABLE}).fetchall()
            return [] if self._statements.are_applied({row[0] for row in steps}) else [f"{TABLE} (an old one)"]

        return await self._reader.read(work, limit_s)

    async def rights_missing(self, limit_s: float) -> list[str]:
        return await self._reader.call(partial(_unwritable, self._reader.path), limit_s)

    async def owner(self, lease_name: str, limit_s: float) -> str:
        found = rows.owner(await self._fetch("owner", {}, limit_s), lease_name)
        if found is None:
            params = {"lease_name": lease_name}
            await self._writer.write(lambda c: c.execute(self._statements["own"], params).fetchall(), limit_s)
            found = rows.owner(await self._fetch("owner", {}, limit_s), lease_name)
        return found or lease_name

    async def close(self) -> None:
        await self._gathering.close()

    async def _fetch(self, name: str, params: dict[str, Any], limit_s: float) -> Rows:
        return await self._reader.read(lambda c: c.execute(self._statements[name], params).fetchall(), limit_s)


class SqliteSchedule:
    """A cursor's guard is the sequence number of the last write that was read."""

    def __init__(self, reader: Session, dialect: Dialect) -> None:
        self._reader = reader
        self._dialect = dialect
        self._statements = dialect.statements

    async def rebuild(self, page_rows: int, limit_s: float) -> AsyncIterator[Page]:
        """Rows that change while the pages are read are found by the next refresh."""
        cursor = await self._reader.read(self._horizon, limit_s)
        after = ("", "")
        while True:
            found, now = await self._page("pending", {"after_at": after[0], "after_id": after[1]}, page_rows, limit_s)
            yield Page(self._due(found), cursor, now)
            if len(found) < page_rows:
                return
            after = (found[-1][1], found[-1][0])

    def _horizon(self, connection: sqlite3.Connection) -> Cursor:
        newest = connection.execute(self._statements["horizon"]).fetchone()
        if newest is None:
            return Cursor(START, "", 0)
        return Cursor(self._dialect.instant(newest[1]), newest[2], newest[0])

    async def refresh(self, cursor: Cursor, page_rows: int, limit_s: float) -> Page:
        found, now = await self._page("refresh", {"seen": cursor.guard}, page_rows, limit_s)
        if found:
            intent_id, _, modified_at, *_, seq = found[-1]
            cursor = Cursor(self._dialect.instant(modified_at), intent_id, seq)
        return Page(self._due(found), cursor, now)

    async def _page(
        self, name: str, params: dict[str, Any], page_rows: int, limit_s: float
    ) -> tuple[Rows, dt.datetime]:
        def work(connection: sqlite3.Connection) -> tuple[Rows, str]:
            found = connection.execute(self._statements[name], {**params, "limit": page_rows}).fetchall()
            return found, connection.execute(self._statements["clock"]).fetchone()[0]

        found, now = await self._reader.read(work, limit_s)
        return found, self._dialect.instant(now)

    def _due(self, found: Rows) -> list[Due]:
        time = self._dialect.instant
        texts: rows.Texts = {}
        due = []
        for intent_id, due_text, modified_text, url, target, created_text, deadline_s, *_ in found:
            modified_at = time(modified_text)
            # A new intent has the same instant in all three columns: converted once.
            due_at = modified_at if due_text == modified_text else due_text and time(due_text)
            created_at = modified_at if created_text == modified_text else time(created_text)
            due.append(rows.due((intent_id, due_at, modified_at, url, target, created_at, deadline_s), texts))
        return due

    async def left_open(self, term: Term, most: int, limit_s: float) -> LeftOpen:
        params = {"epoch": term.epoch, "holder": term.holder_id, "limit": most}
        found = await self._reader.read(lambda c: c.execute(self._statements["left_open"], params).fetchall(), limit_s)
        return rows.left_open(found)

    def on_submitted(self, hint: Callable[[], None]) -> None:
        """SQLite cannot notify: `hint` is never called."""

    async def listen(self, limit_s: float) -> bool:
        return False


def _unwritable(path: str) -> list[str]:
    """The file permissions that are missing.

    SQLite has no rights: the file and its folder must be writable, because the journal is written beside the file.
    """
    places = (path, os.path.dirname(os.path.abspath(path)))
    return [f"write permission on {place}" for place in places if not os.access(place, os.W_OK)]


def _submit_params(new: NewIntent) -> dict[str, Any]:
    own = {"id": new.intent_id, "payload": rows.payload(new), "hash": rows.payload_hash(new.payload)}
    return {**rows.contract_params(new.contract), **own}


def stamp(at: dt.datetime) -> str:
    """The time in the format that strftime writes in the statements: UTC, milliseconds."""
    return at.astimezone(dt.UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
