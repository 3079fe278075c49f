"""For stores that have no settings to look at, and no transaction to roll a write back with."""

from __future__ import annotations

from fencehold.ports.checkup import Condition


class NoCheckup:
    """`why` says, in the finding, why no write is tried. There is nothing else to find."""

    def __init__(self, why: str) -> None:
        self._why = why

    async def try_write(self, limit_s: float) -> str:
        return self._why

    async def conditions(self, limit_s: float) -> list[Condition]:
        return []
