"""The keeper's thread: one per process, shared by all its stores, with an event loop of its own."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Protocol, TypeVar

from fencehold.runtime.core import forks

T = TypeVar("T")

WIND_UP_LIMIT_S, WIND_UP_ROUNDS = 2.0, 4


class KeeperLoop(Protocol):
    """Where the keeper runs."""

    def begin(self, work: Coroutine[Any, Any, T]) -> asyncio.Future[T]:
        """Started there; a future of the caller's loop."""
        ...

    def post(self, callback: Callable[..., object], *args: Any) -> None: ...


class KeeperThread:
    """A daemon: a process that ends without a word lets its leases expire."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.loop.set_task_factory(self._task)
        self.generation = forks.generation()
        self.users = 0
        self._tasks: set[asyncio.Task[Any]] = set()
        self._thread = threading.Thread(target=self._run, name="fencehold-keeper", daemon=True)
        self._thread.start()

    def submit(self, work: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        return asyncio.run_coroutine_threadsafe(work, self.loop)

    def begin(self, work: Coroutine[Any, Any, T]) -> asyncio.Future[T]:
        return asyncio.wrap_future(self.submit(work))

    def post(self, callback: Callable[..., object], *args: Any) -> None:
        """Have it called there; after the thread has ended nothing is called."""
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self.loop.call_soon_threadsafe(callback, *args)

    def _task(self, loop: asyncio.AbstractEventLoop, work: Any, /, **options: Any) -> asyncio.Task[Any]:
        """An event loop alone does not keep its tasks: those of a store that nobody closed would be collected."""
        task: asyncio.Task[Any] = asyncio.Task(work, loop=loop, **options)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()
        wind_up(self.loop)

    def stop(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)


def wind_up(loop: asyncio.AbstractEventLoop) -> None:
    """End all tasks of a loop that no longer runs, and close it. On the loop's own thread."""
    for _ in range(WIND_UP_ROUNDS):  # a task that is cancelled may start others on its way out
        loop.run_until_complete(asyncio.sleep(0))  # what was posted begins, and who waits for what has ended hears it
        if not (leftover := asyncio.all_tasks(loop)):
            break
        for task in leftover:
            task.cancel()
        loop.run_until_complete(asyncio.wait(leftover, timeout=WIND_UP_LIMIT_S / WIND_UP_ROUNDS))
    loop.close()


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


def leave_after(thread: KeeperThread, work: Coroutine[Any, Any, None]) -> concurrent.futures.Future[None]:
    """Do this last piece of work on the thread, and leave it then, whatever becomes of the caller meanwhile."""
    done = thread.submit(work)
    done.add_done_callback(lambda _: leave(thread))
    return done
