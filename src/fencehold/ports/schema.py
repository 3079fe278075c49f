"""The tables: created and upgraded by numbered SQL files, under a lock."""

from __future__ import annotations

from typing import Protocol


class SchemaPort(Protocol):
    async def init(self, limit_s: float) -> list[str]:
        """Bring the tables up to date, safe to repeat and safe in parallel; the names of the steps just applied."""
        ...

    def script(self) -> str:
        """The same steps as SQL text for a database administrator."""
        ...
