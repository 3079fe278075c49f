"""What `fencehold doctor` asks of a database besides its tables: whether it can be written, and how it is set."""

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
    """One thing that was looked at: what was found, and what to do about it."""

    check: str
    state: State
    detail: str
    hint: str = ""


@dataclass(frozen=True)
class TablesMade:
    """What stands beside the leases, by the record of what `init` made, and is still there."""

    outboxes: list[str] = field(default_factory=list)
    has_items: bool = False


class CheckupPort(Protocol):
    async def try_write(self, limit_s: float) -> str | None:
        """Acquire a lease of a name that nobody uses, and roll it back. Returns None, or why no write was tried.

        Raises what keeps this process from writing: ConfigurationError (no_permission, read_only, ...), Unavailable
        (busy: somebody holds the lock) or Uncertain. Nothing is changed in any case.
        """
        ...

    async def tables_made(self, limit_s: float) -> TablesMade:
        """In the schema of the lease table and in the one that tables without a schema are made in.

        Raises ConfigurationError (no_permission) if this role may not read the record.
        """
        ...

    async def conditions(self, limit_s: float) -> list[Condition]:
        """Settings of the database, of this role's sessions, or of the file's place that matter for leases."""
        ...
