"""The tables of a backend: numbered SQL files create and upgrade them, while a lock keeps other processes out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from fencehold.model.errors import ConfigurationError

#: Called with a text that says what `init` waits for: now and then while it waits, never otherwise.
Waits = Callable[[str], None]


def unheard(what: str) -> None:
    """Do nothing. It is the default for callers that need not know what `init` waits for."""


class SchemaPort(Protocol):
    async def init(self, limit_s: float, waits: Waits = unheard) -> list[str]:
        """Bring the tables up to date and return the names of the steps just applied. Safe to repeat and in parallel.

        Programs that use the tables go on meanwhile: `init` gives up a lock that it does not get soon, and asks again.
        Raises Unavailable (busy) if it did not get the lock within the limit, ConfigurationError (table_lost,
        column_lost, safeguard_lost) if something that was made once is gone; nothing was changed then.
        """
        ...

    async def missing(self, limit_s: float) -> list[str]:
        """Return the names of what this version needs and the database lacks, such as `fencehold_leases.lease_id`.

        Empty if nothing is missing. A missing table is named once, without its columns.
        """
        ...

    async def fault(self, limit_s: float) -> ConfigurationError | None:
        """Return the error that keeps programs from using these tables, with advice; None when nothing is missing.

        `init` repairs `schema_missing` and `schema_old`; it refuses `table_lost`, `column_lost` and
        `safeguard_lost`.
        """
        ...

    async def rights_missing(self, limit_s: float) -> list[str]:
        """Return the rights that this role lacks on the existing tables, such as `UPDATE on fencehold_leases`.

        An empty list: no right is missing.
        """
        ...

    def script(self) -> str:
        """Return the steps of `init` as SQL text for a database administrator."""
        ...
