"""A user's handlers, whatever their kind, as one thing: give it events, and it raises or returns."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from fencehold.model.errors import ConfigurationError, FenceholdError
from fencehold.ports.events import Claim

Handler = Callable[[Any], Any]
Run = Callable[[Any], Awaitable[Any]]
ANY_TYPE = "*"


class Reject(FenceholdError):
    """Raised by a handler: trying again is pointless; the event goes to the dead letters at once, with this reason."""

    code = "rejected"


class Handlers:
    """One handler for all events, or one per event type; async ones run on the loop, others on threads of their own."""

    def __init__(self, given: Handler | Mapping[str, Handler], threads_max: int) -> None:
        table: dict[Any, Any] = dict(given) if isinstance(given, Mapping) else {ANY_TYPE: given}
        wrong = [repr(key) for key, value in table.items() if not callable(value) or not isinstance(key, str)]
        if wrong or not table:
            raise ConfigurationError(
                f"No handler for {', '.join(wrong) or 'anything'}.",
                hint='Give `async def handle(event)`, or {"order.created": handle, ...}; "*" takes all other types.',
                code="bad_handler",
            )
        for handler in table.values():
            check_is_no_generator(handler)
        self._threads_max = threads_max
        self._threads: ThreadPoolExecutor | None = None
        self._on_loop: dict[int, Run] = {}
        self._runs = {event_type: self._run(handler) for event_type, handler in table.items()}
        self.fallback = self._runs.get(ANY_TYPE)
        self.only = self.fallback if len(self._runs) == 1 else None
        self.event_types = None if self.fallback else tuple(sorted(self._runs))
        self.on_threads = self._threads is not None

    def of(self, claim: Claim) -> Run:
        run = self._runs.get(claim.event_type, self.fallback)
        assert run is not None, "only types with a handler are claimed"
        return run

    def close(self) -> None:
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
            """A thread cannot be stopped: its slot stays taken until it returns, whatever became of the lease."""
            future = asyncio.get_running_loop().run_in_executor(threads, call, event)
            try:
                answer = await asyncio.shield(future)
            except asyncio.CancelledError:
                await asyncio.wait([future])
                if future.cancelled():
                    raise
                answer = future.result()  # done after all: that counts, if its lease still does
            if inspect.isawaitable(answer):  # a plain function around an async one
                answer = await answer
            refuse_generator(answer)

        return on_a_thread

    def _on_the_loop(self, handler: Handler) -> Run:
        """The same for the same handler: what is handled in one go is told by that."""

        async def on_the_loop(event: Any) -> None:
            refuse_generator(await handler(event))

        return self._on_loop.setdefault(id(handler), on_the_loop)


def check_is_no_generator(handler: Handler) -> None:
    """One that yields would be called and never run: refused where it can be seen."""
    for called in (handler, getattr(handler, "__call__", None)):  # noqa: B004
        if inspect.isgeneratorfunction(called) or inspect.isasyncgenfunction(called):
            raise ConfigurationError(
                f"{handler!r:.80} is a generator: calling it runs nothing of it.",
                hint="Take the `yield` out of the handler, or loop over the generator in a function of its own.",
                code="bad_handler",
            )


def refuse_generator(answer: object) -> None:
    """Of a handler that returned one: a failed try, for nothing of it was run."""
    if inspect.isgenerator(answer) or inspect.isasyncgen(answer):
        raise TypeError(f"the handler returned a generator, {answer!r:.80}, and nothing of it was run")


def is_async(handler: Handler) -> bool:
    while hasattr(handler, "func"):  # functools.partial
        handler = handler.func
    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(getattr(handler, "__call__", None))  # noqa: B004
