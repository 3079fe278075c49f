"""The keeper's thread, with its own event loop: one per process, shared by all stores."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Callable, Collection, Coroutine
from typing import Any, Protocol, TypeVar

from fencehold.model.errors import FenceholdError
from fencehold.ports.fact_table import StoreFacts
from fencehold.runtime.core.trust import fork_generation

T = TypeVar("T")

WIND_UP_LIMIT_S, WIND_UP_ROUNDS = 2.0, 4
CRASH_PAUSE_S = 1.0
STOP_LIMIT_S = 5.0


class KeeperLoop(Protocol):
    """The event loop on which the keeper runs, as code on other threads uses it."""

    def begin(self, work: Coroutine[Any, Any, T]) -> asyncio.Future[T]:
        """Start `work` on the keeper's loop. Returns a future for the caller's loop."""
        ...

    def post(self, callback: Callable[..., object], *args: Any) -> None: ...


class KeeperThread:
    """The thread that runs the keepers of all stores. It is a daemon: it does not keep the process alive.

    If the process exits without closing its stores, its leases expire.
    """

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.loop.set_task_factory(self._task)
        self.generation = fork_generation()
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
        post_to(self.loop, callback, *args)

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


def post_to(loop: asyncio.AbstractEventLoop, callback: Callable[..., object], *args: Any) -> bool:
    """Have `callback` called on this event loop. Callable on any thread.

    Returns True, or False if the loop is closed; then `callback` is not called.
    """
    try:
        loop.call_soon_threadsafe(callback, *args)
    except RuntimeError:
        return False
    return True


def wind_up(loop: asyncio.AbstractEventLoop) -> None:
    """Cancel all tasks of an event loop that was stopped, wait for them within a limit, and close the loop.

    Call it on the loop's thread.
    """
    for _ in range(WIND_UP_ROUNDS):  # a cancelled task may start other tasks before it ends
        # One turn of the loop: posted callbacks run, and whoever awaits a task that has ended is woken.
        loop.run_until_complete(asyncio.sleep(0))
        if not (leftover := asyncio.all_tasks(loop)):
            break
        for task in leftover:
            task.cancel()
        loop.run_until_complete(asyncio.wait(leftover, timeout=WIND_UP_LIMIT_S / WIND_UP_ROUNDS))
    loop.close()


async def ended(tasks: Collection[asyncio.Task[None]]) -> None:
    """Wait until the tasks have ended; after STOP_LIMIT_S, cancel those that have not, and return."""
    if tasks:
        _, late = await asyncio.wait(tasks, timeout=STOP_LIMIT_S)
        for task in late:
            task.cancel()


async def lasting(run: Callable[[], Coroutine[Any, Any, None]], facts: StoreFacts) -> None:
    """Call `run` until it returns. If it raises an unexpected error, log that and call it again after a pause.

    A bug of this library must not stop the renewals.
    """
    while True:
        try:
            return await run()
        except Exception as error:  # noqa: BLE001 - logged, and run again
            kind = error.code if isinstance(error, FenceholdError) else type(error).__name__
            facts.internal_error(error=f"{kind}: {error}")
            await asyncio.sleep(CRASH_PAUSE_S)


_lock = threading.Lock()
_thread: KeeperThread | None = None


def enter() -> KeeperThread:
    """Return the keeper's thread of this process, and count the caller as a user. The first user starts the thread."""
    global _thread
    with _lock:
        if _thread is None or _thread.generation != fork_generation():
            _thread = KeeperThread()
        _thread.users += 1
        return _thread


def leave(thread: KeeperThread) -> None:
    """Record that the caller no longer uses the thread. When the last user leaves, the thread stops."""
    global _thread
    with _lock:
        thread.users -= 1
        if thread.users == 0:
            thread.stop()
            if _thread is thread:
                _thread = None


def leave_after(thread: KeeperThread, work: Coroutine[Any, Any, None]) -> concurrent.futures.Future[None]:
    """Run `work` on the thread, and then call `leave(thread)`, even if the caller was cancelled meanwhile.

    Returns the future of `work`.
    """
    done = thread.submit(work)
    done.add_done_callback(lambda _: leave(thread))
    return done
