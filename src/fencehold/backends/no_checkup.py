"""For stores that have no settings to look at, and no transaction to roll a write back with."""

from __future__ import annotations

from fencehold.ports.checkup import Condition, State


class NoCheckup:
    """`why` says, in the finding, why no write is tried."""

    def __init__(self, why: str) -> None:
        self._why = why

    async def try_write(self, limit_s: float) -> None:
        return None

    async def conditions(self, limit_s: float) -> list[Condition]:
        return [Condition("writing", State.SKIPPED, f"not tried: {self._why}")]
