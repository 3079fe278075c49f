"""The `async with term:` bodies of one term: cut short when it ends, waited for before its lease is given back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from fencehold.ports.time_limit import TimeLimit
from fencehold.runtime.core.cancel_scope import CancelScope
from fencehold.runtime.election.held_lease import HeldLease
from fencehold.runtime.election.pending_fence import told_on


class TermBody(CancelScope):
    """`fenced` are the caller's connections with a transaction that this body has put a fence into."""

    def __init__(self) -> None:
        super().__init__("the term of office is over")
        self.fenced: list[object] = []


class TermBodies:
    """All tasks inside the term at this moment. `over` is set, on their event loop, once the term has ended."""

    def __init__(self, held: HeldLease) -> None:
        self.over = asyncio.Event()
        self._held = held
        self._loop = asyncio.get_running_loop()
        self._inside: list[TermBody] = []
        self._empty = asyncio.Event()
        self._empty.set()
        held.on_change(self._changed)

    def enter(self) -> None:
        self._inside.append(TermBody())
        self._empty.clear()

    def leave(self) -> TermBody:
        """The innermost body of the current task, which leaves now."""
        body = next(b for b in reversed(self._inside) if b.task is asyncio.current_task())
        self._inside.remove(body)
        if not self._inside:
            self._empty.set()
        return body

    def remember(self, target: object) -> list[TermBody]:
        """The body of this task has a transaction open there: if the body is cut short, so is that.

        Returns the bodies that did not know of it, for `forget`.
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
        """The fence was refused, because this connection cannot be fenced: what is done there is not these bodies'."""
        for body in bodies:
            body.fenced = [one for one in body.fenced if one is not target]

    async def left(self, limit_s: float) -> bool:
        """Wait, within the limit, until nobody is inside any more; False when somebody still is."""
        try:
            async with TimeLimit(limit_s):
                return await self._empty.wait()
        except TimeoutError:
            return False

    def soon(self, call: Callable[[], object]) -> None:
        """On their event loop, from any thread; takes no lock."""
        told_on(self._loop, call)

    def _changed(self) -> None:
        """On any thread."""
        if self._held.ended_because is None:
            return
        try:
            self._loop.call_soon_threadsafe(self._cancel)
        except RuntimeError:  # the loop is closed, and with it every body
            return

    def _cancel(self) -> None:
        self.over.set()
        for body in self._inside:
            body.cancel()
