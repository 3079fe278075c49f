"""The table methods of every part that has tables of its own: each call goes to the part's SchemaPort."""

from __future__ import annotations

from fencehold.model.errors import ConfigurationError
from fencehold.ports.schema import SchemaPort, Waits, unheard


class OwnTables:
    def __init__(self, schema: SchemaPort) -> None:
        self._schema = schema

    async def init(self, limit_s: float, waits: Waits = unheard) -> list[str]:
        return await self._schema.init(limit_s, waits)

    async def missing(self, limit_s: float) -> list[str]:
        return await self._schema.missing(limit_s)

    async def fault(self, limit_s: float) -> ConfigurationError | None:
        return await self._schema.fault(limit_s)

    async def rights_missing(self, limit_s: float) -> list[str]:
        return await self._schema.rights_missing(limit_s)

    def script(self) -> str:
        return self._schema.script()
