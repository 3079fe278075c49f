"""Checks a SQLite file for `fencehold doctor`: a write that is rolled back, the journal, the file system, free room."""

from __future__ import annotations

import os
import secrets
import sqlite3

from fencehold.backends.sql.statements import Statements, tables_made
from fencehold.backends.sqlite.file import system as file_system
from fencehold.backends.sqlite.leases import modifier
from fencehold.backends.sqlite.session import Session, single
from fencehold.ports.checkup import Condition, State, TablesMade

PROBE = "fencehold doctor "
UNSAFE_JOURNALS = ("off", "memory")


class SqliteCheckup:
    def __init__(self, session: Session, statements: Statements) -> None:
        self._session = session
        self._statements = statements

    async def try_write(self, limit_s: float) -> None:
        await self._session.call(lambda: self._write(self._session.connection(limit_s)), limit_s)

    async def tables_made(self, limit_s: float) -> TablesMade:
        return await self._session.call(lambda: self._made(limit_s), limit_s)

    def _made(self, limit_s: float) -> TablesMade:
        if not os.path.exists(self._session.path):  # only init makes it
            return TablesMade()
        connection = self._session.connection(limit_s)
        if not single(connection, self._statements["steps_there"]):
            return TablesMade()
        rows = connection.execute(self._statements["tables_made"]).fetchall()
        return tables_made(self._statements.table, rows)

    async def conditions(self, limit_s: float) -> list[Condition]:
        path = self._session.path
        return [await self._session.read(_journal, limit_s), _place(path), _room(path)]

    def _write(self, connection: sqlite3.Connection) -> None:
        name = f"{PROBE}{secrets.token_hex(8)}"
        connection.execute("BEGIN IMMEDIATE")
        try:
            params = {"name": name, "holder": name, "lease": modifier(1.0), "nonce": ""}
            connection.execute(self._statements["acquire"], params).fetchall()
        finally:
            self._session.roll_back()


def _journal(connection: sqlite3.Connection) -> Condition:
    mode = single(connection, "PRAGMA journal_mode")
    if mode == "wal":
        return Condition("journal", State.OK, "WAL, and every commit is on disk before it is answered")
    if mode in UNSAFE_JOURNALS:
        hint = "PRAGMA journal_mode = WAL, as `fencehold init` sets it."
        return Condition("journal", State.ERROR, f"{mode}: a crash can destroy the file", hint)
    hint = "`fencehold init` switches the file to WAL."
    return Condition("journal", State.WARNING, f"{mode}: whoever reads the file holds up renewals", hint)


def _place(path: str) -> Condition:
    doubt = file_system.doubt(path)
    if doubt is None:
        return Condition("file system", State.OK, file_system.kind_of(path) or "unknown to this system")
    return Condition("file system", State.WARNING, doubt, "Use a disk of this machine, or a database server.")


def _room(path: str) -> Condition:
    """Return the finding about free room on the disk: an error if the disk is full.

    The test write of `try_write` does not find that out: it is rolled back, so it never reaches the disk.
    """
    room = file_system.room_bytes(path)
    if room is None:
        return Condition("disk", State.SKIPPED, "this system does not say how much room there is")
    if file_system.is_full(path):
        words = f"disk_full: {room // 1000} kB are left for this user on the file system of {path}"
        return Condition("disk", State.ERROR, words, "Make room there: without it no lease can be granted or renewed.")
    return Condition("disk", State.OK, f"{room // 1_000_000} MB are left for this user")
