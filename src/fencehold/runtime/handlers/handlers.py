"""A user's handlers, whatever their kind, as one thing: give it events, and it raises or returns."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from fencehold.model.errors import ConfigurationError, FenceholdError
from fencehold.ports.events import Claim
from fencehold.runtime.handlers.checks import check_callable, end_unawaited, refuse_unfinished

Handler = Callable[[Any], Any]
Run = Callable[[Any], Awaitable[Any]]
ANY_TYPE = "*"
BAD = "bad_handler"
FORMS = 'Give `async def handle(event)`, or {"order.created": handle, ...}; "*" takes all other types.'


class Reject(FenceholdError):
    """Raised by a handler: trying again is pointless; the event goes to the dead letters at once, with this reason."""

    code = "rejected"

    def __str__(self) -> str:
        """Without its code, which says no more than its name."""
        return f"{self.message} {self.hint}".rstrip()


class Handlers:
    """One handler for all events, or one per event type; async ones run on the loop, others on threads of their own."""

    def __init__(self, given: Handler | Mapping[str, Handler], threads_max: int, *, argument: str = "event") -> None:
        if not isinstance(given, Mapping) and not callable(given):
            raise ConfigurationError(f"The handler is {given!r:.80}, which cannot be called.", hint=FORMS, code=BAD)
        table: dict[Any, Any] = dict(given) if isinstance(given, Mapping) else {ANY_TYPE: given}
        wrong = [repr(key) for key, value in table.items() if not callable(value) or not isinstance(key, str)]
        if wrong or not table:
            raise ConfigurationError(
                f"No handler for {', '.join(wrong) or 'anything'}.",
                hint=FORMS,
                code=BAD,
            )
        for handler in table.values():
            check_callable(handler, argument)
        self._threads_max = threads_max
        self._is_closed = False
        self._threads: ThreadPoolExecutor | None = None
        self._on_loop: dict[int, Run] = {}
        self._threaded: dict[asyncio.Task[Any] | None, asyncio.Future[Any]] = {}  # by the task that waits for it
        self._names = {event_type: name_of(handler) for event_type, handler in table.items()}
        self._runs = {event_type: self._run(handler) for event_type, handler in table.items()}
        self.fallback = self._runs.get(ANY_TYPE)
        self.only = self.fallback if len(self._runs) == 1 else None
        self.event_types = None if self.fallback else tuple(sorted(self._runs))

    def of(self, claim: Claim) -> Run:
        run = self._runs.get(claim.event_type, self.fallback)
        assert run is not None, "only types with a handler are claimed"
        return run

    def name(self, claim: Claim) -> str:
        """The handler of this event, for people: `app.send_mail`."""
        return self._names.get(claim.event_type) or self._names.get(ANY_TYPE, "")

    def is_on_thread(self, task: asyncio.Task[Any] | None) -> bool:
        """Whether a thread, which cannot be stopped, is at work for this task now."""
        return task in self._threaded

    def close(self) -> None:
        """No handler is called any more; threads end when their functions return, and tasks no longer wait for them."""
        self._is_closed = True
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)

    def _run(self, handler: Handler) -> Run:
        if is_async(handler):
            return self._on_the_loop(handler)
        if self._threads is None:
            self._threads = ThreadPoolExecutor(self._threads_max, thread_name_prefix="fencehold-handler")
        threads = self._threads

        def call(event: Any) -> Any:
            try:
                return handler(event)
            except StopIteration as error:  # no future can carry it: whoever awaited it would wait for ever
                raise RuntimeError("the handler raised StopIteration") from error

        async def on_a_thread(event: Any) -> None:
            """A thread cannot be stopped: its place stays taken until it returns, whatever became of the lease."""
            future = asyncio.get_running_loop().run_in_executor(threads, call, event)
            task = asyncio.current_task()
            self._threaded[task] = future
            try:
                answer = await asyncio.shield(future)
            except asyncio.CancelledError:
                await self._returned(future)
                if not future.done() or future.cancelled():
                    raise
                answer = future.result()  # done after all: that counts, if its lease still does
                if inspect.isawaitable(answer):
                    end_unawaited(answer)
                    raise  # only the rest was to do the work, and nothing of it has begun
            finally:
                self._threaded.pop(task, None)
            if inspect.isawaitable(answer):  # a plain function around an async one: `lambda event: send(event)`
                answer = await answer
            refuse_unfinished(answer)

        return on_a_thread

    async def _returned(self, future: asyncio.Future[Any]) -> None:
        """Once the thread has returned, however often the wait is cancelled; at the latest when the worker is over."""
        while not (future.done() or self._is_closed):
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait([future])

    def _on_the_loop(self, handler: Handler) -> Run:
        """The same for the same handler: what is handled in one go is told by that."""

        async def on_the_loop(event: Any) -> None:
            refuse_unfinished(await handler(event))

        return self._on_loop.setdefault(id(handler), on_the_loop)


def is_async(handler: Handler) -> bool:
    while hasattr(handler, "func"):  # functools.partial
        handler = handler.func
    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(getattr(handler, "__call__", None))  # noqa: B004


def name_of(handler: Handler) -> str:
    """As its module calls it: `app.send_mail`; of an object that is called, its class."""
    while hasattr(handler, "func"):  # functools.partial
        handler = handler.func
    found: Any = handler if hasattr(handler, "__qualname__") else type(handler)
    return f"{found.__module__}.{found.__qualname__}"
