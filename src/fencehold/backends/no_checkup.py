"""The checkup of stores that have no settings to check, and no transaction in which to roll a test write back."""

from __future__ import annotations

from fencehold.ports.checkup import Condition, TablesMade


class NoCheckup:
    """`why` is the reason reported for not trying a write; `has_items`: whether `init` makes anything for items."""

    def __init__(self, why: str, has_items: bool = False) -> None:
        self._why = why
        self._has_items = has_items

    async def try_write(self, limit_s: float) -> str:
        return self._why

    async def tables_made(self, limit_s: float) -> TablesMade:
        return TablesMade(has_items=self._has_items)

    async def conditions(self, limit_s: float) -> list[Condition]:
        return []
