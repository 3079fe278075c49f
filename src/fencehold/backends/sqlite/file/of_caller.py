"""Finds which file a caller's connection leads to. If it is not the store's, the error names both files."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable, Sequence
from typing import Any


def main_file(connection: sqlite3.Connection, statement: str) -> list[str | bytes]:
    """Return the file of the main database. Attached files do not count: a commit to two files is not one commit."""
    cursor = connection.cursor()
    cursor.row_factory = None  # the caller's own may return any type
    return main_of(cursor.execute(statement).fetchall())


def main_of(rows: Iterable[Sequence[Any]]) -> list[str | bytes]:
    """Return the main file from the rows of the statement `file`."""
    return [file for _, place, file in rows if place == "main"]


def elsewhere(found: Sequence[str | bytes], path: str) -> str:
    """Return in words where the connection leads and where it should lead; empty if it leads to our file."""
    for file in found:
        try:
            if file and os.path.samefile(file, path):
                return ""
        except FileNotFoundError:
            pass
        return f" (it is to {os.fsdecode(file) or 'memory'}, not to {os.path.abspath(path)})"
    return ""
