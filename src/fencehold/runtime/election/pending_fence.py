"""A fence that must be awaited: nothing is sent to the database before the await, and a missing await is reported."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator
from contextlib import suppress
from types import TracebackType
from typing import Any

from fencehold.model.errors import ConfigurationError
from fencehold.runtime.core.keeper_thread import post_to

NOT_AWAITED_HINT = (
    "Write `await term.fence(connection)` for an async connection or session. Without await nothing was fenced: look "
    "at what this transaction wrote, it may have been committed."
)


class PendingFence(Coroutine[Any, Any, None]):
    """The coroutine that `term.fence(...)` returns for an async connection.

    If it is garbage-collected without having been awaited, it calls `forgotten`, on the thread where that happens. The
    garbage collector may run at any moment, while any lock is held: `forgotten` must not take a lock or raise.
    """

    def __init__(
        self, work: Coroutine[Any, Any, None], asked: Coroutine[Any, Any, None], forgotten: Callable[[], None]
    ) -> None:
        """Wrap `work`, the coroutine to run when this object is awaited.

        `work` awaits `asked`, which is the backend's coroutine that fences the transaction.
        """
        self._work, self._asked = work, asked
        self._forgotten: Callable[[], None] | None = forgotten

    def __await__(self) -> Generator[Any, None, None]:
        self._forgotten = None
        return self._work.__await__()

    def send(self, value: Any, /) -> Any:
        self._forgotten = None
        return self._work.send(value)

    def throw(self, kind: Any, value: Any = None, trace: TracebackType | None = None, /) -> Any:
        self._forgotten = None
        try:
            return self._work.throw(kind if value is None else value)
        except BaseException:
            self._asked.close()  # in case it was cancelled before it began
            raise

    def close(self) -> None:
        """Discard this fence on purpose, without awaiting it: `forgotten` is not called."""
        self._forgotten = None
        self._work.close()
        self._asked.close()

    def __del__(self) -> None:
        if self._forgotten is not None:
            self._asked.close()  # so that Python warns once, not for both coroutines
            self._forgotten()


def loop_here() -> asyncio.AbstractEventLoop | None:
    """Return the event loop that is running on this thread; None if there is none."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def called_on(loop: asyncio.AbstractEventLoop | None, fact: Callable[[], object]) -> None:
    """Have `fact` called on the event loop, where no lock is held; if it is None or closed, call `fact` here.

    Never raises.
    """
    if loop is None or not post_to(loop, fact):
        with suppress(Exception):
            fact()


def sync_needed() -> ConfigurationError:
    return ConfigurationError(
        "A sync connection is needed here; nothing was fenced.",
        hint="fencehold.sync fences sync connections and sessions only. For an async one use the async store: "
        "`await term.fence(session)`. Roll the transaction back.",
        code="bad_connection",
    )
