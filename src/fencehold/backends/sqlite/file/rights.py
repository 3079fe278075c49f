"""Checks whether a SQLite file may be opened: files that opening makes beside it can keep its owner from writing."""

from __future__ import annotations

import os

from fencehold.model.errors import ConfigurationError

WRITE_HINT = (
    "The process needs permission to read and write the file and its folder: SQLite keeps its journal beside it."
)
_WAL = b"\x02\x02"  # in the header: the versions needed to write and to read the file
_VERSIONS_AT = 18


def check(path: str) -> None:
    """Raise ConfigurationError (read_only) if this process may only read a file in WAL mode that nobody has open.

    Even a reader would then make `-shm` and `-wal`. This user would own them, and users that may write the file could
    not write any more.
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
    """The folder, if it alone is what this process cannot write; empty otherwise."""
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
