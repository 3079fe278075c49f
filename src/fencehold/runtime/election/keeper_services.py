"""The keeper and the watch of one store, which run together on the keeper's thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from fencehold.model.errors import FenceholdError
from fencehold.ports.backend import Backend
from fencehold.ports.clock import Clock
from fencehold.ports.fact_table import StoreFacts
from fencehold.runtime.election.keeper import Keeper
from fencehold.runtime.election.watch import Watch

CRASH_PAUSE_S = 1.0


class KeeperServices:
    """Built and used on the keeper's loop only."""

    def __init__(self, backend: Backend, clock: Clock, facts: StoreFacts) -> None:
        self.backend = backend
        self.keeper = Keeper(backend.leases, clock, facts.sink)
        self.watch = Watch(backend.leases, backend.wakeup, clock, facts.sink, self.keeper.hint)
        self._clock = clock
        self._facts = facts
        self._tasks: list[asyncio.Task[None]] = []
        self._listening = False
        self._is_unwanted = False

    async def open(self, limit_s: float) -> None:
        await self.backend.open(limit_s)
        if self._is_unwanted:
            raise asyncio.CancelledError
        parts = (self.keeper.run, self.watch.run)
        self._tasks = [asyncio.create_task(lasting(run, self._facts)) for run in parts]

    async def listen(self) -> None:
        """Start to listen for hints. Only leaders, followers and observers need them; a one-off command does not."""
        if not self._listening:
            self._listening = True
            await self.watch.listen()

    async def give_up(self) -> None:
        """The caller of `open` was cancelled: close, or make `open` fail if it is still running."""
        self._is_unwanted = True
        if self._tasks:
            await self.close()

    async def close(self) -> None:
        await self.keeper.close()
        self.watch.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.backend.close()


async def lasting(run: Callable[[], Coroutine[Any, Any, None]], facts: StoreFacts) -> None:
    """Call `run` again after an unexpected error, which is logged: a bug of ours must not stop renewals."""
    while True:
        try:
            return await run()
        except Exception as error:  # noqa: BLE001 - logged, and run again
            kind = error.code if isinstance(error, FenceholdError) else type(error).__name__
            facts.internal_error(error=f"{kind}: {error}")
            await asyncio.sleep(CRASH_PAUSE_S)
