"""The connection of one outbox in one event loop: its statements, one at a time, and the LISTEN for added events."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any

from fencehold.backends.postgres import wire
from fencehold.backends.postgres.commits import Commits
from fencehold.backends.postgres.planned_session import PlannedSession
from fencehold.backends.postgres.session import EXPLAINED, Rows
from fencehold.backends.sql.statements import Statements
from fencehold.ports.time_limit import fixed

WATCH_AFTER_S = 0.001  # the socket is not watched between a busy worker's turns: that would cost two system calls


class EventSession(PlannedSession):
    def __init__(self, info: str, statements: Statements, commits: Commits | None = None) -> None:
        super().__init__(info, statements, commits)
        self._watch_timer: asyncio.TimerHandle | None = None

    async def quick(self, name: str, params: Mapping[str, Any], limit_s: float) -> Rows:
        """Run a statement and return its rows as `run` does, but without a task of its own, which costs less time.

        Only for callers that are never cancelled: psycopg's own clean-up after a cancel can hang.
        """
        return await self._following(lambda left_s: self._quick(name, params, left_s), limit_s)

    async def _quick(self, name: str, params: Mapping[str, Any], limit_s: float) -> Rows:
        await self._turn(limit_s)
        try:
            connection = await self._ready(limit_s)
            self._unwatch()
            try:
                with self._trouble, wire.Limit(connection, fixed(limit_s)):
                    if self._must_listen(connection):
                        await self._listen(connection)
                    try:
                        return await self._kept(connection, name, lambda: self._fetch(connection, name, params))
                    except EXPLAINED as error:
                        raise await self._explained(connection, error) from None
            finally:
                self._watch_soon()
        finally:
            self._lock.release()

    async def run_in_turn(self, first: str, name: str, params: Mapping[str, Any], limit_s: float) -> Rows:
        """Run the statements `first` and `name` in one transaction; return the rows of `name`.

        The locks that `first` takes are held until `name` has committed.
        """

        async def both(connection: wire.Connection) -> Rows:
            async with connection.transaction():
                await connection.execute(self.statements[first])
                return await self._fetch(connection, name, params)

        return await self._following(lambda left_s: self._alone(both, left_s), limit_s)

    async def copy(self, name: str, chunks: Iterable[bytes], limit_s: float) -> None:
        """Load all chunks with the COPY statement `name`, or none of them.

        Each chunk is made while the server reads the chunk before.
        """

        async def load(connection: wire.Connection) -> None:
            async with connection.cursor() as cursor, cursor.copy(self.statements[name]) as rows:
                for chunk in chunks:
                    await rows.write(chunk)

        await self._alone(load, limit_s)

    def _watch_soon(self) -> None:
        if self._watch_timer is None and self._wants_listen:
            self._watch_timer = asyncio.get_running_loop().call_later(WATCH_AFTER_S, self._watch_if_idle)

    def _watch_if_idle(self) -> None:
        self._watch_timer = None
        if not self._lock.locked() and self._watched_fd is None:
            self._watch()

    async def close(self) -> None:
        if self._watch_timer is not None:
            self._watch_timer.cancel()
        await super().close()
