"""The tables: created and upgraded by numbered SQL files, under a lock."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from fencehold.model.errors import ConfigurationError

#: Hears, in plain words, what `init` is waiting for. Called now and then while it waits, never when it does not.
Waits = Callable[[str], None]


def unheard(what: str) -> None:
    """For callers that need no word of what `init` waits for."""


class SchemaPort(Protocol):
    async def init(self, limit_s: float, waits: Waits = unheard) -> list[str]:
        """Bring the tables up to date, safe to repeat and safe in parallel; the names of the steps just applied.

        Programs that use the tables run on meanwhile: a lock that is not to be had soon is given up and asked for
        again. Raises Unavailable (busy) when it was not to be had within the limit, ConfigurationError (table_lost,
        column_lost, safeguard_lost) when something that was made once is gone; nothing was changed then.
        """
        ...

    async def missing(self, limit_s: float) -> list[str]:
        """What this version needs and the database does not have, such as `fencehold_leases.lease_id`, by name.

        Empty when all is there. A table that is missing as a whole is named once, without its columns.
        """
        ...

    async def fault(self, limit_s: float) -> ConfigurationError | None:
        """What keeps these tables from being used, with the advice that helps: None when nothing is missing.

        `init` mends `schema_missing` and `schema_old`; it refuses `table_lost`, `column_lost` and
        `safeguard_lost`.
        """
        ...

    async def rights_missing(self, limit_s: float) -> list[str]:
        """What this role lacks on the tables that are there, such as `UPDATE on fencehold_leases`; empty if nothing."""
        ...

    def script(self) -> str:
        """The same steps as SQL text for a database administrator."""
        ...
