"""Cancels the body of an `async with` block when its lease ends, without losing a cancel that came from outside.

Also has `to_its_end`, for a call that goes on although its caller is cancelled.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


async def to_its_end(work: Coroutine[Any, Any, T]) -> T:
    """Return the result of `work`, or raise its error. If the caller is cancelled, `work` goes on to its end.

    After such a cancel nobody waits for the answer of `work`: its error is dropped, where asyncio would log an
    exception that was never retrieved.
    """
    task = asyncio.ensure_future(work)
    task.add_done_callback(_note_error)
    return await asyncio.shield(task)


def _note_error(task: asyncio.Future[Any]) -> None:
    if not task.cancelled():
        task.exception()


class CancelScope:
    """Cancels the task that runs the body of one `async with` block.

    Create and use it on that task's event loop only.
    """

    def __init__(self, why: str) -> None:
        task = asyncio.current_task()
        assert task is not None, "async with runs in a task"
        self.task: asyncio.Task[Any] = task
        self.cancelling_before = task.cancelling()
        self.cancelled_by_us = False
        self.has_left = False
        self._why = why

    def cancel(self) -> None:
        if not (self.cancelled_by_us or self.has_left):
            self.cancelled_by_us = True
            self.task.cancel(self._why)

    def leave(self) -> bool:
        """Undo this scope's own cancel of the task, if there was one.

        Returns True if nobody else has cancelled the task since it entered the block.
        """
        self.has_left = True
        if self.cancelled_by_us:
            return self.task.uncancel() <= self.cancelling_before
        return self.task.cancelling() <= self.cancelling_before
