"""A call whose caller is cancelled before the store fails: what asyncio complains of afterwards."""

import asyncio
import gc
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

import fencehold


async def complaints_about(
    call: Callable[[], Awaitable[Any]], monkeypatch: pytest.MonkeyPatch, port: type, verb: str
) -> list[Any]:
    """Cancel the call while the port's verb waits for the store, which then fails."""
    asked, go_on, failed = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def fails(*_: Any) -> Any:
        asked.set()
        await go_on.wait()
        failed.set()
        raise fencehold.Unavailable("the store is gone")

    complaints: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
    with monkeypatch.context() as patched:
        patched.setattr(port, verb, fails)
        task = asyncio.ensure_future(call())
        await asked.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        go_on.set()
        await failed.wait()
        await asyncio.sleep(0)
    del task
    gc.collect()
    return complaints
