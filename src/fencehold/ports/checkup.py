"""What `fencehold doctor` checks of a database besides its tables: whether it can be written, and its settings."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import Protocol


class State(enum.StrEnum):
    OK = "ok"
    WARNING = "warning"
    ERROR = "error"
    SKIPPED = "skipped"


@dataclass(frozen=True)
class Condition:
    """The result of one check: what was found, and what to do about it."""

    check: str
    state: State
    detail: str
    hint: str = ""


@dataclass(frozen=True)
class TablesMade:
    """The tables, besides the lease table, that `init` has recorded as made and that still exist."""

    outboxes: list[str] = field(default_factory=list)
    has_items: bool = False


class CheckupPort(Protocol):
    async def try_write(self, limit_s: float) -> str | None:
        """Acquire a lease of a name that nobody uses, and roll that back. Return None if it worked.

        If this database cannot try a write, returns the reason. Raises the error that keeps this process from writing:
        ConfigurationError (no_permission, read_only, ...), Unavailable (busy: another session holds the lock) or
        Uncertain. Nothing is changed in any case.
        """
        ...

    async def tables_made(self, limit_s: float) -> TablesMade:
        """Return the outboxes, and whether there are items, that `init` made and that are still there.

        Looks in the schema of the lease table and in the default schema, where tables without a schema are made. Raises
        ConfigurationError (no_permission) if this role may not read the record of what was made.
        """
        ...

    async def conditions(self, limit_s: float) -> list[Condition]:
        """Check the settings that matter for leases, and return the result of each check.

        They are settings of the database, of this role's sessions, or of the place of a SQLite file.
        """
        ...
