"""The keeper's thread, with its own event loop: one per process, shared by all stores."""

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
    """The event loop on which the keeper runs, as other threads use it."""

    def begin(self, work: Coroutine[Any, Any, T]) -> asyncio.Future[T]:
        """Start `work` on the keeper's loop. Returns a future for the caller's loop."""
        ...

    def post(self, callback: Callable[..., object], *args: Any) -> None: ...


class KeeperThread:
    """A daemon thread: it does not keep the process alive. If the process just exits, its leases expire."""

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
        """Call `callback` on the thread's loop. Does nothing once the thread has ended."""
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self.loop.call_soon_threadsafe(callback, *args)

    def _task(self, loop: asyncio.AbstractEventLoop, work: Any, /, **options: Any) -> asyncio.Task[Any]:
        """Create a task and keep a reference to it until it is done.

        An event loop keeps no strong references, so the tasks of a store that nobody closed would be collected.
        """
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
    """Cancel all tasks of a loop that was stopped, wait for them within a limit, and close it. On the loop's thread."""
    for _ in range(WIND_UP_ROUNDS):  # a cancelled task may start other tasks before it ends
        # One turn of the loop: posted callbacks run, and whoever awaits a task that has ended is woken.
        loop.run_until_complete(asyncio.sleep(0))
        if not (leftover := asyncio.all_tasks(loop)):
            break
        for task in leftover:
            task.cancel()
        loop.run_until_complete(asyncio.wait(leftover, timeout=WIND_UP_LIMIT_S / WIND_UP_ROUNDS))
    loop.close()


_lock = threading.Lock()
_thread: KeeperThread | None = None


def enter() -> KeeperThread:
    """Get the keeper's thread of this process and count the caller as a user. The first user starts it."""
    global _thread
    with _lock:
        if _thread is None or _thread.generation != forks.generation():
            _thread = KeeperThread()
        _thread.users += 1
        return _thread


def leave(thread: KeeperThread) -> None:
    """End the caller's use of the thread. The last user stops it."""
    global _thread
    with _lock:
        thread.users -= 1
        if thread.users == 0:
            thread.stop()
            if _thread is thread:
                _thread = None


def leave_after(thread: KeeperThread, work: Coroutine[Any, Any, None]) -> concurrent.futures.Future[None]:
    """Run `work` on the thread and then leave the thread, even if the caller was cancelled meanwhile."""
    done = thread.submit(work)
    done.add_done_callback(lambda _: leave(thread))
    return done
