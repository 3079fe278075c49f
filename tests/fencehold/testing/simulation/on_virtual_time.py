"""What tests on virtual time share: a test that runs on the virtual loop, its clock, and a host on the same loop."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from fencehold.testing.simulation import virtual_loop

T = TypeVar("T")


def virtual(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    @functools.wraps(test)
    def run() -> None:
        virtual_loop.run(test)

    return run


class LoopClock:
    def now_s(self) -> float:
        return asyncio.get_running_loop().time()

    async def wait(self, event: asyncio.Event, timeout_s: float | None) -> bool:
        try:
            async with asyncio.timeout(timeout_s):
                return await event.wait()
        except TimeoutError:
            return event.is_set()


class SameLoopHost:
    def begin(self, work: Coroutine[Any, Any, T]) -> asyncio.Future[T]:
        return asyncio.ensure_future(work)

    def post(self, callback: Callable[..., object], *args: Any) -> None:
        asyncio.get_running_loop().call_soon(callback, *args)
