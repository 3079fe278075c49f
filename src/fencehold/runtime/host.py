"""The keeper's thread: one per process, shared by all its stores, with an event loop of its own."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Protocol, TypeVar

from fencehold.runtime import forks

T = TypeVar("T")


class Host(Protocol):
    """Where the keeper runs."""

    def begin(self, work: Coroutine[Any, Any, T]) -> asyncio.Future[T]:
        """Started there; a future of the caller's loop."""
        ...

    def post(self, callback: Callable[..., object], *args: Any) -> None: ...


class KeeperThread:
    """A daemon: a process that ends without a word lets its leases expire."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.generation = forks.generation()
        self.users = 0
        self._thread = threading.Thread(target=self._run, name="fencehold-keeper", daemon=True)
        self._thread.start()

    def submit(self, work: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        return asyncio.run_coroutine_threadsafe(work, self.loop)

    def begin(self, work: Coroutine[Any, Any, T]) -> asyncio.Future[T]:
        return asyncio.wrap_future(self.submit(work))

    def post(self, callback: Callable[..., object], *args: Any) -> None:
        self.loop.call_soon_threadsafe(callback, *args)

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()
        leftover = asyncio.all_tasks(self.loop)
        for task in leftover:
            task.cancel()
        if leftover:
            self.loop.run_until_complete(asyncio.wait(leftover, timeout=1.0))
        self.loop.close()

    def stop(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)


_lock = threading.Lock()
_thread: KeeperThread | None = None


def enter() -> KeeperThread:
    """The process's keeper thread, started by its first user."""
    global _thread
    with _lock:
        if _thread is None or _thread.generation != forks.generation():
            _thread = KeeperThread()
        _thread.users += 1
        return _thread


def leave(thread: KeeperThread) -> None:
    """The last user stops it."""
    global _thread
    with _lock:
        thread.users -= 1
        if thread.users == 0:
            thread.stop()
            if _thread is thread:
                _thread = None
