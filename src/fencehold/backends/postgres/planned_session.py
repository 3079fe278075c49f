"""A session whose query plans do not depend on the table's statistics.

After a bulk load the statistics are wrong, and a statement that takes a few rows would read the whole table.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Mapping
from typing import Any

from fencehold.backends.postgres import wire
from fencehold.backends.postgres.session import Rows, Session

_AS_IT_IS = contextlib.nullcontext()


class PlannedSession(Session):
    async def _settle(self, connection: wire.Connection) -> None:
        await super()._settle(connection)
        if not self.is_pooled:
            connection.prepare_threshold = 0
            await connection.execute(self.statements["plans"], {"is_local": False})

    async def _fetch(self, connection: wire.Connection, name: str, params: Mapping[str, Any]) -> Rows:
        async with self._planned(connection):
            cursor = connection.cursor(binary=True)
            await cursor.execute(self.statements[name], params or None)
            return await cursor.fetchall()  # every statement of this session returns rows

    def _planned(self, connection: wire.Connection) -> contextlib.AbstractAsyncContextManager[None]:
        """Return the context in which a statement runs, so that the settings for its plan hold.

        Behind a pooler settings last for one transaction only, so the context is a transaction that sets them first;
        else the session has them already, and the context does nothing.
        """
        if not self.is_pooled:
            return _AS_IT_IS
        return self._with_plans(connection)

    @contextlib.asynccontextmanager
    async def _with_plans(self, connection: wire.Connection) -> AsyncIterator[None]:
        async with connection.transaction():
            await connection.execute(self.statements["plans"], {"is_local": True})
            yield
