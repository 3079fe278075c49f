"""What the parts of a contender share: they do things again and again, whatever errors the database gives."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, ClassVar, TypeVar

from fencehold.model.errors import FenceholdError
from fencehold.testing.history import boottime_s
from fencehold.verify.messages import Brief, Orders, Windows, tell

T = TypeVar("T")


class Role:
    """A part that keeps what it has beyond its lease. On order, it stands still before it goes on."""

    name: ClassVar[str]  # of the order, and of the window that it opens

    def __init__(self, brief: Brief, windows: Windows) -> None:
        self._brief, self._windows = brief, windows
        self._ordered: dict[str, Any] | None = None

    def listen(self, orders: Orders) -> None:
        orders.on(self.name, self._hear)

    def _hear(self, order: dict[str, Any]) -> None:
        self._ordered = order

    @asynccontextmanager
    async def window(self, moment: str, **what: Any) -> AsyncIterator[None]:
        """Stand still before the block if that was ordered, and report when the block has ended."""
        order, self._ordered = self._ordered, None
        if order is not None:
            await self._windows.stand(order["window"], self.name, moment, **what)
        yield
        if order is not None:
            tell("late", window=order["window"], was_accepted=None)


async def repeated(turn: Callable[[], Awaitable[None]], pause_s: Callable[[], float]) -> None:
    while True:
        with suppress(FenceholdError):
            await turn()
        await asyncio.sleep(pause_s())


async def found(look: Callable[[], Awaitable[T | None]], limit_s: float, every_s: float) -> T | None:
    """Look until there is something, and return it; None if that takes too long."""
    until_s = boottime_s() + limit_s
    while boottime_s() < until_s:
        with suppress(FenceholdError):
            if (seen := await look()) is not None:
                return seen
        await asyncio.sleep(every_s)
    return None
