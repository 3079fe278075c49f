"""What every part with tables of its own does about them."""

from __future__ import annotations

from fencehold.ports.schema import SchemaPort


class OwnTables:
    def __init__(self, schema: SchemaPort) -> None:
        self._schema = schema

    async def init(self, limit_s: float) -> list[str]:
        return await self._schema.init(limit_s)

    def script(self) -> str:
        return self._schema.script()
