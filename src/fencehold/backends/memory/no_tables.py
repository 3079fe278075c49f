"""The table methods of a memory store: it has no tables, so nothing is ever missing."""

from __future__ import annotations

from fencehold.model.errors import ConfigurationError
from fencehold.ports.schema import Waits, unheard


class NoTables:
    async def init(self, limit_s: float, waits: Waits = unheard) -> list[str]:
        return []

    async def missing(self, limit_s: float) -> list[str]:
        return []

    async def fault(self, limit_s: float) -> ConfigurationError | None:
        return None

    async def rights_missing(self, limit_s: float) -> list[str]:
        return []

    def script(self) -> str:
        return "-- the memory store has no tables\n"
