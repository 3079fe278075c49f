"""Finds out whether a path still leads to the file that was opened: a restored backup replaces it without notice."""

from __future__ import annotations

import os
from dataclasses import dataclass

from fencehold.model.errors import ConfigurationError, Unavailable

SIDE_FILES = ("-wal", "-shm")

Identity = tuple[int, int] | None  # device and inode; None: no file


@dataclass(frozen=True, slots=True)
class Replaced:
    """Says that the file that was opened is not at its path any more; `is_gone`: no file is there now.

    `left`: the side files (-wal, -shm) of the file that was opened which are still there.
    """

    path: str
    is_gone: bool
    left: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.path} {'was removed' if self.is_gone else 'was replaced by another file'}"


class OpenFile:
    """Knows the identity (device and inode) of a file, taken right before the file is opened.

    While the file is open, no other file can have this identity.
    """

    def __init__(self, path: str) -> None:
        self._path = os.path.abspath(path)  # now: the process may change its directory
        self._main = _identity(self._path)
        self._sides: tuple[Identity, ...] = (None, None)

    @property
    def is_there(self) -> bool:
        return self._main is not None

    def replaced(self) -> Replaced | None:
        """Return a Replaced if another file, or none, is at the path now; None if the file that was opened is."""
        sides = self._side_files() if None in self._sides else self._sides
        main = _identity(self._path)
        if main == self._main:
            self._sides = sides  # SQLite makes them with the first statement and keeps them while the file is open
            return None
        pairs = zip(SIDE_FILES, self._side_files(), self._sides, strict=True)
        left = tuple(self._path + ending for ending, now, before in pairs if now is not None and now == before)
        return Replaced(self._path, main is None, left)

    def _side_files(self) -> tuple[Identity, ...]:
        return tuple(_identity(self._path + ending) for ending in SIDE_FILES)


def mixed(found: Replaced) -> ConfigurationError:
    """Return the error for a new file beside which the side files of the old file are still there.

    SQLite would read the new file together with the old journal.
    """
    return ConfigurationError(
        f"{found} while programs had it open, and {' and '.join(found.left)} of the file before are still there: "
        "SQLite would mix both. Nothing more is read or written.",
        hint="Stop every program that uses the file, remove its -wal and -shm, put the file in its place again, and "
        "start them.",
        code="file_replaced",
    )


def cut_off(found: Replaced) -> Unavailable:
    return Unavailable(f"{found} while a transaction was open; nothing was committed.", code="file_replaced")


def _identity(path: str) -> Identity:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino
