"""Callbacks, in transition order, one at a time, each with a limit: a hung one delays later callbacks, nothing else."""

from __future__ import annotations

import asyncio
import inspect
from collections import deque
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

CALLBACK_LIMIT_S = 10.0
OVERTIME_S = 1.0  # what the callbacks of a term have, together, once the term is over
ABANDON_S = 1.0  # what a callback has to end once it was cancelled
WAITING_MAX = 1000

Broken = Callable[[Exception, Callable[..., Any]], None]


@dataclass(eq=False)
class Delivery:
    """One call of one callback. `ends_term`: it tells of a term's end, and so is not hurried by the next one."""

    dispatcher: Dispatcher
    callback: Callable[..., Any]
    args: tuple[Any, ...]
    ends_term: bool
    until_s: float | None = None
    limit: asyncio.Timeout | None = None
    is_over: bool = False

    @property
    def name(self) -> str:
        return getattr(self.callback, "__qualname__", repr(self.callback))

    def hurry(self, until_s: float) -> None:
        """It has until then, if it had longer; in the loop's time."""
        if self.ends_term:
            return
        self.until_s = until_s if self.until_s is None else min(until_s, self.until_s)
        if self.limit is not None and not self.limit.expired():
            self.limit.reschedule(min(self.until_s, self.limit.when() or self.until_s))


#: Inherited by the tasks and threads that a callback starts.
_inside: ContextVar[Delivery | None] = ContextVar("fencehold_delivery", default=None)


class Dispatcher:
    """Runs in the caller's loop, in a task that ends whenever nothing is left to deliver.

    A callback that raises, overruns or is cancelled is reported to `broken`; the next one goes on.
    """

    def __init__(self, broken: Broken, limit_s: float = CALLBACK_LIMIT_S) -> None:
        self._broken = broken
        self._limit_s = limit_s
        self._waiting: deque[Delivery] = deque()
        self._current: Delivery | None = None
        self._idle = asyncio.Event()
        self._idle.set()
        self._task: asyncio.Task[None] | None = None

    def send(self, callback: Callable[..., Any], *args: Any, ends_term: bool = False) -> None:
        """Call it after all that was sent before."""
        if len(self._waiting) >= WAITING_MAX:
            dropped = self._waiting.popleft()
            late = RuntimeError(f"more than {WAITING_MAX} callbacks are waiting: the oldest was dropped")
            self._broken(late, dropped.callback)
        self._waiting.append(Delivery(self, callback, args, ends_term))
        if self._idle.is_set():
            self._idle = asyncio.Event()  # a new one: a leader may be used in one event loop after another
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run(), name="fencehold-callbacks")

    def hurry(self) -> None:
        """What was sent so far has OVERTIME_S in all: a coroutine is cancelled then, a plain function still called."""
        until_s = asyncio.get_running_loop().time() + OVERTIME_S
        for delivery in self._undelivered():
            delivery.hurry(until_s)

    async def drain(self, limit_s: float) -> bool:
        """Wait until all that was sent is delivered; False when that takes longer than the limit."""
        try:
            async with asyncio.timeout(limit_s):
                return await self._idle.wait()
        except TimeoutError:
            return False

    def is_delivering_here(self) -> bool:
        """Whether the caller runs inside one of our callbacks, on any task or thread, and so cannot wait for it."""
        delivery = _inside.get()
        return delivery is not None and delivery.dispatcher is self and not delivery.is_over

    def stop(self) -> list[str]:
        """Cancel what runs and drop what waits; the names of all these."""
        left = [delivery.name for delivery in self._undelivered()]
        self._waiting.clear()
        if self._task is not None:
            self._task.cancel()
            self._task = None
        return left

    def _undelivered(self) -> list[Delivery]:
        return [*([self._current] if self._current is not None else []), *self._waiting]

    async def _run(self) -> None:
        try:
            while self._waiting:
                self._current = delivery = self._waiting.popleft()
                await self._deliver(delivery)
        finally:
            self._current = None
            self._idle.set()

    async def _deliver(self, delivery: Delivery) -> None:
        _inside.set(delivery)
        try:
            result = delivery.callback(*delivery.args)
            # A task or future that a callback returns is work that it started, not part of the call.
            if inspect.isawaitable(result) and not asyncio.isfuture(result):
                await self._within_limit(delivery, result)
        except Exception as error:  # noqa: BLE001 - user code may raise anything; the loop must go on
            self._broken(error, delivery.callback)
        finally:
            delivery.is_over = True

    async def _within_limit(self, delivery: Delivery, work: Awaitable[Any]) -> None:
        """In a task of its own: one that ignores its cancellation is left alone, and the next callback goes on."""
        task = asyncio.ensure_future(work)
        task.add_done_callback(_seen)
        began_s = asyncio.get_running_loop().time()
        ends_s = began_s + self._limit_s
        try:
            async with asyncio.timeout_at(min(ends_s, delivery.until_s or ends_s)) as delivery.limit:
                await asyncio.wait([task])
        except TimeoutError:
            task.cancel()
            await asyncio.wait([task], timeout=ABANDON_S)
            why = f"callback {delivery.name} took longer than {self._limit_s:g} s"
            if delivery.until_s is not None and delivery.until_s < ends_s:
                why = f"callback {delivery.name} had not ended {OVERTIME_S:g} s after its term"
            raise TimeoutError(f"{why} and was {'cancelled' if task.done() else 'abandoned'}") from None
        finally:
            delivery.limit = None
            task.cancel()
        if task.cancelled():
            raise RuntimeError(f"callback {delivery.name} was cancelled")
        task.result()


def _seen(done: asyncio.Future[Any]) -> None:
    if not done.cancelled():
        done.exception()
