"""An event loop on its own thread, for programs that have none."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from fencehold.model.errors import ConfigurationError, Unavailable
from fencehold.runtime.core.keeper_thread import wind_up
from fencehold.runtime.core.trust import fork_generation

T = TypeVar("T")


class BackgroundLoop:
    """An event loop on a daemon thread. `run` blocks the caller until the work is done; Ctrl-C cancels the work."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._generation = fork_generation()
        self._lock = threading.Lock()
        self._is_stopping = False
        self._thread = threading.Thread(target=self._run_loop, name="fencehold-sync", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._result(self._begun(work))

    def call(self, function: Callable[..., T], *args: Any, **options: Any) -> T:
        """Call a plain function on the loop, and return its result."""

        async def called() -> T:
            return function(*args, **options)

        return self.run(called())

    def run_unless(self, stuck: concurrent.futures.Future[T], work: Coroutine[Any, Any, T], grace_s: float) -> T:
        """Run `work` like `run`, but raise the error of `stuck` if `work` is not done `grace_s` after that error came.

        The event loop may be blocked then, so that `work` would never end.
        """
        future = self._begun(work)
        try:
            concurrent.futures.wait([future, stuck], return_when=concurrent.futures.FIRST_COMPLETED)
            done, _ = concurrent.futures.wait([future], timeout=grace_s)
        except KeyboardInterrupt:
            future.cancel()
            raise
        return self._result(future) if done else stuck.result()

    def run_within(self, limit_s: float, work: Coroutine[Any, Any, T]) -> T:
        """Run `work` and return its result.

        Raises Unavailable (`loop_blocked`) if the loop is blocked for `limit_s`.
        """
        future = self._begun(work)
        if not concurrent.futures.wait([future], timeout=limit_s).done:
            future.cancel()
            raise Unavailable(
                f"The store's event loop has not answered for {limit_s:.0f} s: a handler blocks it.",
                hint="Give plain functions as handlers, which run on threads, or do nothing in async ones that blocks.",
                code="loop_blocked",
            )
        return self._result(future)

    def _begun(self, work: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        if self._generation != fork_generation():
            work.close()
            raise store_closed()
        with self._lock:  # never after the loop's last turn: the work would never be done
            if self._is_stopping:
                work.close()
                raise store_closed()
            return asyncio.run_coroutine_threadsafe(work, self._loop)

    def _result(self, future: concurrent.futures.Future[T]) -> T:
        try:
            return future.result()
        except KeyboardInterrupt:
            future.cancel()
            raise
        except concurrent.futures.CancelledError:
            if self._is_stopping:
                raise store_closed() from None
            raise

    @property
    def is_stopped(self) -> bool:
        """True once `stop` was called; also True in a forked child, which does not have the loop's thread."""
        return self._is_stopping or self._generation != fork_generation()

    def stop(self) -> None:
        """End the loop. Calls of `run` that still wait on other threads raise ConfigurationError (`store_closed`)."""
        with self._lock:
            self._is_stopping = True
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _run_loop(self) -> None:
        self._loop.run_forever()
        wind_up(self._loop)


def store_closed() -> ConfigurationError:
    return ConfigurationError(
        "The store is closed, or belongs to the process that forked this one.",
        hint="Use `with fencehold.sync.connect(...) as store:` or `store.open()`; in a forked child connect anew.",
        code="store_closed",
    )
