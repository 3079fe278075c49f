"""The one place that sorts sqlite3's errors: executed, not executed, or unknown."""

from __future__ import annotations

import sqlite3

from fencehold.model.errors import ConfigurationError, FenceholdError, Unavailable, Uncertain

INIT_HINT = "Create the tables with `await store.init()` or `fencehold init` (`fencehold sql init` prints the SQL)."


def of_statement(error: sqlite3.Error, path: str) -> FenceholdError:
    text = str(error)
    return _of_file(text, path) or _of_engine(error, text, path)


def _of_file(text: str, path: str) -> FenceholdError | None:
    if "no such table" in text or "no such column" in text:
        return ConfigurationError(f"{path}: {text}.", hint=INIT_HINT, code="schema_missing")
    if "unable to open" in text:
        hint = f"Check the path and its permissions. {INIT_HINT}"
        return ConfigurationError(f"{path} does not exist or cannot be opened.", hint=hint, code="schema_missing")
    if "not a database" in text or "malformed" in text:
        return ConfigurationError(f"{path}: {text}.", hint="Name a SQLite file, or a new one.", code="bad_url")
    if "readonly" in text:
        hint = "The process needs write permission on the file and on its directory."
        return Unavailable(f"{path} is read-only for this process.", hint=hint, code="read_only")
    return None


def _of_engine(error: sqlite3.Error, text: str, path: str) -> FenceholdError:
    if "locked" in text or "busy" in text:
        hint = "Another process kept the write lock; keep transactions on this file short."
        return Unavailable(f"{path} stayed locked; nothing was changed.", hint=hint, code="busy")
    if isinstance(error, sqlite3.OperationalError):
        return Uncertain(f"{path}: {text}.", hint="It counts as lost until the store says otherwise.", code="no_answer")
    return Unavailable(f"{path}: {text}.", code="store_error")
