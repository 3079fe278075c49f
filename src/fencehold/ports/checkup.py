"""What `fencehold doctor` asks of a database besides its tables: whether it can be written, and how it is set."""

from __future__ import annotations

import enum
from dataclasses import dataclass
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


class CheckupPort(Protocol):
    async def try_write(self, limit_s: float) -> str | None:
        """Acquire a lease of a name that nobody uses, and roll it back. Returns None, or why no write was tried.

        Raises what keeps this process from writing: ConfigurationError (no_permission, read_only, ...), Unavailable
        (busy: somebody holds the lock) or Uncertain. Nothing is changed in any case.
        """
        ...

    async def conditions(self, limit_s: float) -> list[Condition]:
        """Settings of the database, of this role's sessions, or of the file's place that matter for leases."""
        ...
