"""Notices changes of leases. SQLite cannot notify other processes, but it reports cheaply that the file has changed."""

from __future__ import annotations

import asyncio
import sqlite3

from fencehold.backends.sql.statements import Statements
from fencehold.backends.sqlite.session import Session, single
from fencehold.model.errors import FenceholdError
from fencehold.ports.wakeup import UNKNOWN, Hint

LOOK_EVERY_S = 0.25
LOOK_LIMIT_S = 1.0


class FileWatch:
    """Watches the file, and calls every hint when it has changed; what has changed is not known.

    So a released lease is noticed within a quarter of a second, not only at the next poll.
    """

    def __init__(self, session: Session, statements: Statements) -> None:
        self._session = session
        self._statements = statements
        self._hints: list[Hint] = []
        self._task: asyncio.Task[None] | None = None

    def on_hint(self, hint: Hint) -> None:
        self._hints.append(hint)

    async def listen(self, limit_s: float) -> bool:
        """Start to watch the file. Always return False: SQLite cannot notify, so callers must still poll."""
        if self._task is None:
            self._task = asyncio.create_task(self._look(await self._seen()))
        return False

    def close(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _look(self, last: int | None) -> None:
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            version = await self._seen()
            if version != last:
                for hint in self._hints:
                    hint(UNKNOWN, "")
            last = version

    async def _seen(self) -> int | None:
        try:
            return await self._session.read(self._version, LOOK_LIMIT_S)
        except FenceholdError:
            return None  # the callers' own polls raise the error

    def _version(self, connection: sqlite3.Connection) -> int:
        return int(single(connection, self._statements["changes"]))
