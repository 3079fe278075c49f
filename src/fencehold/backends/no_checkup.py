"""For stores that have no settings to look at, and no transaction to roll a write back with."""

from __future__ import annotations

from fencehold.ports.checkup import Condition, TablesMade


class NoCheckup:
    """`why` says, in the finding, why no write is tried; `has_items` whether init has something to do for items."""

    def __init__(self, why: str, has_items: bool = False) -> None:
        self._why = why
        self._has_items = has_items

    async def try_write(self, limit_s: float) -> str:
        return self._why

    async def tables_made(self, limit_s: float) -> TablesMade:
        return TablesMade(has_items=self._has_items)

    async def conditions(self, limit_s: float) -> list[Condition]:
        return []
