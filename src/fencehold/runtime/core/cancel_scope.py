"""Cancel the body of an `async with` when its lease ends, without losing a cancel that came from outside."""

from __future__ import annotations

import asyncio
from typing import Any


class CancelScope:
    """The task inside one such block. Create and use it on that task's event loop only."""

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
        """Undo our own cancel, if there was one. True if nobody else has cancelled the task since it entered."""
        self.has_left = True
        if self.cancelled_by_us:
            return self.task.uncancel() <= self.cancelling_before
        return self.task.cancelling() <= self.cancelling_before
