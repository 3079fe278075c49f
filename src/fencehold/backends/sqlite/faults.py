"""Turns sqlite3's errors into ours, in this one place: was the statement executed, not executed, or is it unknown?"""

from __future__ import annotations

import os
import sqlite3
from typing import TypeVar

from fencehold.backends.sql import statements as sql_text
from fencehold.backends.sql.statements import Statements, schema_missing, schema_old
from fencehold.backends.sqlite.file import system as file_system
from fencehold.backends.sqlite.file.rights import WRITE_HINT, unwritable_folder
from fencehold.model.errors import ConfigurationError, FenceholdError, Unavailable, Uncertain

E = TypeVar("E", bound=FenceholdError)

RIGHT_FOLDER = "Is this the right folder? {relative}`init` in a wrong folder makes a second database. If it is: "
RELATIVE = "A relative path begins where the program was started, and "
ROOM_HINT = "Make room on the disk; it is retried meanwhile."
PRIMARY_CODE = 0xFF  # of an extended result code
_NO_SHARED_MEMORY = (sqlite3.SQLITE_IOERR_SHMOPEN, sqlite3.SQLITE_IOERR_SHMSIZE, sqlite3.SQLITE_IOERR_SHMMAP)


def of_statement(error: sqlite3.Error, path: str, statements: Statements | None = None) -> FenceholdError:
    """Return our error for an error of sqlite3.

    ConfigurationError for a mistake, Unavailable if the statement was not executed, Uncertain if that is not known.
    With `statements`, the hint names the command that makes or upgrades their tables.
    """
    text = str(error)
    fault = _of_file(text, path) or _of_engine(error, text, path)
    return asking_first(sql_text.advised(fault, statements) if statements else fault, path)


def asking_first(fault: E, path: str) -> E:
    """Return the same error. If tables are missing, its hint now first asks whether this is the right file.

    `init` in another folder would make a second database, and so a second leader. A file in the current folder was
    probably given by a relative path.
    """
    if fault.code == "schema_missing":
        asked = RIGHT_FOLDER.format(relative=RELATIVE if _is_here(path) else "")
        fault.hint = asked + fault.hint[:1].lower() + fault.hint[1:]
    return fault


def _is_here(path: str) -> bool:
    try:
        return not os.path.relpath(path).startswith(os.pardir)
    except (OSError, ValueError):  # the current folder is gone, or no file is known
        return False


def _of_file(text: str, path: str) -> FenceholdError | None:
    if "no such column" in text or "has no column" in text:
        return schema_old(f"{path}: {text}")
    if "no such table" in text:
        return schema_missing(f"{path}: {text}.")
    if "unable to open" in text:
        return _unopened(path)
    if "not a database" in text or "malformed" in text:
        return ConfigurationError(f"{path}: {text}.", hint="Name a SQLite file, or a new one.", code="bad_url")
    if "readonly" in text:
        return _unwritable(path, f"{path} is read-only for this process.")
    return None


def _unwritable(path: str, otherwise: str) -> ConfigurationError:
    folder = unwritable_folder(path)
    message = f"{path} can be written by this process, but its folder {folder} cannot." if folder else otherwise
    return ConfigurationError(message, hint=WRITE_HINT, code="read_only")


def unmade(path: str) -> ConfigurationError:
    """Return the error for a file that `init` could not make.

    Its hint differs from that for other missing files, which is to run `init`.
    """
    folder = os.path.dirname(os.path.abspath(path))
    message = f"{path} does not exist and could not be made in the folder {folder}."
    return ConfigurationError(message, hint="Name a place where this user may make files.", code="read_only")


def _unopened(path: str) -> ConfigurationError:
    """Return the error for a file that SQLite could not open, with the reason, which SQLite does not report."""
    folder = os.path.dirname(os.path.abspath(path))
    if os.path.isdir(path):
        hint = "Name a file in it, such as sqlite:///app.db (sqlite:////var/lib/app.db for an absolute path)."
        return ConfigurationError(f"{path} is a folder, not a file.", hint=hint, code="bad_url")
    if os.path.exists(path):
        return _unwritable(path, f"{path} cannot be opened.")
    if not os.path.isdir(folder):
        hint = "Create the folder, or correct the path."
        return ConfigurationError(f"{path} cannot be made: there is no folder {folder}.", hint=hint, code="bad_url")
    if not os.access(folder, os.W_OK):
        message = f"{path} does not exist, and this user may not make it: the folder {folder} cannot be written."
        return ConfigurationError(message, hint=WRITE_HINT, code="read_only")
    return schema_missing(f"{path} does not exist.")


def behind_others(path: str, limit_s: float) -> Unavailable:
    """Return the error for a call that waited for other calls of its session until its limit, and was not begun."""
    return Unavailable(
        f"Other calls on {path} were under way for {limit_s:.1f} s; this one was not begun.",
        hint="One connection runs its calls one after another; keep them short.",
        code="busy",
    )


def _of_engine(error: sqlite3.Error, text: str, path: str) -> FenceholdError:
    if full := _of_full_disk(getattr(error, "sqlite_errorcode", 0), text, path):
        return full
    if "locked" in text or "busy" in text:
        hint = "Another process kept the write lock; keep transactions on this file short."
        return Unavailable(f"{path} stayed locked; nothing was changed.", hint=hint, code="busy")
    if isinstance(error, sqlite3.OperationalError):
        return Uncertain(f"{path}: {text}.", hint="It counts as lost until the store says otherwise.", code="no_answer")
    return Unavailable(f"{path}: {text}.", code="store_error")


def _of_full_disk(code: int, text: str, path: str) -> FenceholdError | None:
    """Return the error if the disk is full, else None.

    SQLite may report a full disk as an I/O error without a cause, so the free room is checked.
    """
    if code == sqlite3.SQLITE_FULL or (code in _NO_SHARED_MEMORY and file_system.is_full(path)):
        return Unavailable(f"{path}: the disk is full; nothing was changed.", hint=ROOM_HINT, code="disk_full")
    if code & PRIMARY_CODE == sqlite3.SQLITE_IOERR and file_system.is_full(path):
        return Uncertain(f"{path}: {text}; the disk is full.", hint=ROOM_HINT, code="disk_full")
    return None
