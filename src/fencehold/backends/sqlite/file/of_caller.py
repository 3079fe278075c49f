"""Which file a connection of the caller's leads to: of one to another file than the store's, both are named."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable, Sequence
from typing import Any


def main_file(connection: sqlite3.Connection, statement: str) -> list[str | bytes]:
    """The file of the main database. An attached one is not asked: a commit to two files is not one commit."""
    cursor = connection.cursor()
    cursor.row_factory = None  # the caller's may give anything
    return main_of(cursor.execute(statement).fetchall())


def main_of(rows: Iterable[Sequence[Any]]) -> list[str | bytes]:
    """Of what the statement `file` answered."""
    return [file for _, place, file in rows if place == "main"]


def elsewhere(found: Sequence[str | bytes], path: str) -> str:
    """In words, where it leads and where it should; empty if to our file."""
    for file in found:
        try:
            if file and os.path.samefile(file, path):
                return ""
        except FileNotFoundError:
            pass
        return f" (it is to {os.fsdecode(file) or 'memory'}, not to {os.path.abspath(path)})"
    return ""
