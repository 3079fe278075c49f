"""Wraps a user's handlers, async or plain, one or one per event type, as async functions of one argument."""

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
    """A handler raises it when another try is pointless: the event becomes a dead letter at once, with this reason."""

    code = "rejected"

    def __str__(self) -> str:
        """The message and hint, without the code: the class name states the same."""
        return f"{self.message} {self.hint}".rstrip()


class Handlers:
    """One handler for all events, or one per event type. Async handlers run on the event loop, others on threads."""

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
        self._threaded: dict[asyncio.Task[Any] | None, asyncio.Future[Any]] = {}  # keys: the tasks that wait for them
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
        """The name of this event's handler, for logs: `app.send_mail`."""
        return self._names.get(claim.event_type) or self._names.get(ANY_TYPE, "")

    def is_on_thread(self, task: asyncio.Task[Any] | None) -> bool:
        """Whether a handler's thread, which cannot be stopped, is running for this task now."""
        return task in self._threaded

    def close(self) -> None:
        """Call no more handlers. Threads end when their functions return; tasks no longer wait for them."""
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
            except StopIteration as error:  # a future cannot hold it: awaiting it would never end
                raise RuntimeError("the handler raised StopIteration") from error

        async def on_a_thread(event: Any) -> None:
            """Run the handler on a thread and wait for it.

            A thread cannot be stopped, so its place stays taken until it returns, also after a cancel or a lost lease.
            """
            future = asyncio.get_running_loop().run_in_executor(threads, call, event)
            task = asyncio.current_task()
            self._threaded[task] = future
            try:
                answer = await asyncio.shield(future)
            except asyncio.CancelledError:
                await self._returned(future)
                if not future.done() or future.cancelled():
                    raise
                answer = future.result()  # it has ended: that counts, if the lease is valid
                if inspect.isawaitable(answer):
                    end_unawaited(answer)
                    raise  # the work was in the awaitable, which has not begun
            finally:
                self._threaded.pop(task, None)
            if inspect.isawaitable(answer):  # a plain function around an async one: `lambda event: send(event)`
                answer = await answer
            refuse_unfinished(answer)

        return on_a_thread

    async def _returned(self, future: asyncio.Future[Any]) -> None:
        """Wait until the thread has returned or `close` was called. Cancels are ignored."""
        while not (future.done() or self._is_closed):
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait([future])

    def _on_the_loop(self, handler: Handler) -> Run:
        """The same function for the same handler: events whose function is the same can share a batch."""

        async def on_the_loop(event: Any) -> None:
            refuse_unfinished(await handler(event))

        return self._on_loop.setdefault(id(handler), on_the_loop)


def is_async(handler: Handler) -> bool:
    while hasattr(handler, "func"):  # functools.partial
        handler = handler.func
    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(getattr(handler, "__call__", None))  # noqa: B004


def name_of(handler: Handler) -> str:
    """The handler's module and qualified name, `app.send_mail`; for a callable object, those of its class."""
    while hasattr(handler, "func"):  # functools.partial
        handler = handler.func
    found: Any = handler if hasattr(handler, "__qualname__") else type(handler)
    return f"{found.__module__}.{found.__qualname__}"
