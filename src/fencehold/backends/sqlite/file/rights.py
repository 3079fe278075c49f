"""Checks whether this process may open a SQLite file: opening makes side files, which may lock other users out."""

from __future__ import annotations

import os

from fencehold.model.errors import ConfigurationError

WRITE_HINT = (
    "The process needs permission to read and write the file and its folder: SQLite keeps its journal beside it."
)
_WAL = b"\x02\x02"  # in the header: the versions needed to write and to read the file
_VERSIONS_AT = 18


def check(path: str) -> None:
    """Raise ConfigurationError (read_only) if this process may not write the file, which is in WAL mode and not open.

    SQLite would make the side files -shm and -wal even for a reader. They would belong to this user, and users that may
    write the file could not write any more.
    """
    if os.path.exists(f"{path}-shm") or not os.path.exists(path) or _is_writable(path) or not _is_wal(path):
        return
    raise ConfigurationError(
        f"{path} cannot be opened: this process may read it but not write it, and no program has it open. SQLite would "
        "make files beside it that keep its owner from writing.",
        hint=WRITE_HINT,
        code="read_only",
    )


def unwritable_folder(path: str) -> str:
    """Return the file's folder if this process may write the file but not the folder; empty otherwise."""
    folder = os.path.dirname(os.path.abspath(path))
    return folder if _is_writable(path) and not _is_writable(folder) else ""


def _is_writable(path: str) -> bool:
    return os.access(path, os.W_OK, effective_ids=os.access in os.supports_effective_ids)


def _is_wal(path: str) -> bool:
    try:
        with open(path, "rb") as file:
            return file.read(_VERSIONS_AT + len(_WAL))[_VERSIONS_AT:] == _WAL
    except OSError:
        return False  # SQLite will raise the error
