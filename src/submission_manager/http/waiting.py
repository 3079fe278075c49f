"""Clients that wait for the first attempt or the end of an intent: one shared read of the database serves them all."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from fencehold import FenceholdError
from submission_manager.ports import IntakePort

LOOK_EVERY_S = 0.1
LOOK_AFTER_TROUBLE_S = 1.0
WAITERS_MAX = 10_000


class Waiters:
    """Lets clients wait for their intents. While nobody waits, nothing is read.

    Each wait ends in time, whatever the database does.
    """

    def __init__(self, intake: IntakePort, limit_s: float, look_every_s: float = LOOK_EVERY_S) -> None:
        self._intake = intake
        self._limit_s = limit_s
        self._look_every_s = look_every_s
        self._waiting: dict[str, set[asyncio.Future[bool]]] = {}
        self._count = 0
        self._task: asyncio.Task[None] | None = None
        self._is_closed = False

    async def moved(self, intent_id: str, limit_s: float) -> bool:
        """Wait until the intent was attempted or is over. Returns True then.

        Returns False if the limit is over, too many clients wait, or `close` was called.
        """
        if self._is_closed or self._count >= WAITERS_MAX:
            return False
        future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(intent_id, set()).add(future)
        self._count += 1
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._look(), name="submission-waiters")
        try:
            async with asyncio.timeout(limit_s):
                return await future
        except TimeoutError:
            return False
        finally:
            self._leave(intent_id, future)

    async def close(self) -> None:
        """End every wait now, with the answer False; later waits end at once."""
        self._is_closed = True
        self._end(list(self._waiting), moved=False)
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    def _leave(self, intent_id: str, future: asyncio.Future[bool]) -> None:
        self._count -= 1
        those = self._waiting.get(intent_id, set())
        those.discard(future)
        if not those:
            self._waiting.pop(intent_id, None)

    async def _look(self) -> None:
        while self._waiting:
            pause_s = self._look_every_s
            try:
                self._end(await self._intake.moved(list(self._waiting), self._limit_s), moved=True)
            except FenceholdError:
                pause_s = LOOK_AFTER_TROUBLE_S
            await asyncio.sleep(pause_s)

    def _end(self, intent_ids: Iterable[str], *, moved: bool) -> None:
        for intent_id in intent_ids:
            for future in self._waiting.get(intent_id, ()):
                if not future.done():
                    future.set_result(moved)
