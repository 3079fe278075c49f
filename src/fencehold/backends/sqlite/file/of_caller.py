"""Finds out whether a caller's connection leads to the store's file."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any


def elsewhere(rows: Iterable[Sequence[Any]], path: str) -> str:
    """Return in words to which file the connection leads instead of `path`; empty if it leads to `path`.

    `rows` are those of the statement `file`. Attached files do not count, because a commit to two files is not one
    commit.
    """
    for file in (file for _, place, file in rows if place == "main"):
        try:
            if file and os.path.samefile(file, path):
                return ""
        except FileNotFoundError:
            pass
        return f" (it is to {os.fsdecode(file) or 'memory'}, not to {os.path.abspath(path)})"
    return ""
