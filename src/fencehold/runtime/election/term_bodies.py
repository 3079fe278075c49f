"""The `async with term:` bodies of one term: cancelled when it ends, awaited before its lease is given back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from fencehold.ports.time_limit import TimeLimit
from fencehold.runtime.core.cancel_scope import CancelScope
from fencehold.runtime.election.held_lease import HeldLease
from fencehold.runtime.election.pending_fence import called_on


class TermBody(CancelScope):
    """One body. `fenced`: the caller's connections and sessions with a transaction that this body has fenced."""

    def __init__(self) -> None:
        super().__init__("the term of office is over")
        self.fenced: list[object] = []


class TermBodies:
    """All bodies that are running in this term now. `over` is set, on their event loop, once the term has ended."""

    def __init__(self, held: HeldLease) -> None:
        self.over = asyncio.Event()
        self._held = held
        self._loop = asyncio.get_running_loop()
        self._inside: list[TermBody] = []
        self._empty = asyncio.Event()
        self._empty.set()
        held.bodies = self
        held.on_change(self._changed)

    def enter(self) -> None:
        self._inside.append(TermBody())
        self._empty.clear()

    def leave(self) -> TermBody:
        """Remove and return the innermost body of the current task, because it ends now."""
        body = next(b for b in reversed(self._inside) if b.task is asyncio.current_task())
        self._inside.remove(body)
        if not self._inside:
            self._empty.set()
        return body

    def remember(self, target: object) -> list[TermBody]:
        """Record that this task fences a transaction on `target`: if its body is cancelled, that must not commit.

        Returns the bodies for which `target` is new; give these to `forget`.
        """
        try:
            task = asyncio.current_task()
        except RuntimeError:  # no event loop in this thread, and so no body
            return []
        new = [b for b in self._inside if b.task is task and all(target is not one for one in b.fenced)]
        for body in new:
            body.fenced.append(target)
        return new

    @staticmethod
    def forget(target: object, bodies: list[TermBody]) -> None:
        """Undo `remember` for these bodies, because the connection cannot be fenced."""
        for body in bodies:
            body.fenced = [one for one in body.fenced if one is not target]

    async def left(self, limit_s: float) -> bool:
        """Wait until no body is running any more. False if one still is after `limit_s`."""
        try:
            async with TimeLimit(limit_s):
                return await self._empty.wait()
        except TimeoutError:
            return False

    def soon(self, call: Callable[[], object]) -> None:
        """Have `call` called on the event loop of the bodies. Any thread; takes no lock."""
        called_on(self._loop, call)

    def _changed(self) -> None:
        """Called on any thread: once the lease has ended, cancel all bodies on their event loop."""
        if not self._held.ended_because:
            return
        try:
            self._loop.call_soon_threadsafe(self._cancel)
        except RuntimeError:  # the loop is closed, so no body is running
            return

    def _cancel(self) -> None:
        self.over.set()
        for body in self._inside:
            body.cancel()
