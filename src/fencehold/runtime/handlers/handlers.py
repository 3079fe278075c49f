"""Checks a user's handlers (one for all events or one per event type), and wraps each as an async function."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import inspect
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from fencehold.model.errors import ConfigurationError, FenceholdError
from fencehold.ports.events import Claim


def check_callable(handler: Callable[[Any], Any], argument: str = "event") -> None:
    """Raise ConfigurationError (`bad_handler`) for a handler that yields, or that cannot be called with one argument.

    A callable whose parameters Python cannot read (some are written in C) is accepted.
    """
    for called in (handler, getattr(handler, "__call__", None)):  # noqa: B004
        if inspect.isgeneratorfunction(called) or inspect.isasyncgenfunction(called):
            raise ConfigurationError(
                f"{handler!r:.80} is a generator: calling it runs nothing of it.",
                hint="Take the `yield` out of the handler, or loop over the generator in a function of its own.",
                code="bad_handler",
            )
    _check_takes_one(handler, argument)


def _check_takes_one(handler: Callable[[Any], Any], argument: str) -> None:
    try:
        # Check the decorated function, not the one inside: a decorator may pass additional arguments to that.
        signature = inspect.signature(handler, follow_wrapped=False)
    except (TypeError, ValueError):  # Python cannot read its parameters
        return
    try:
        signature.bind(object())
    except TypeError as error:
        name = getattr(handler, "__qualname__", None) or repr(handler)
        raise ConfigurationError(
            f"{name:.80}{signature} cannot be called with one argument, `{argument}`: {error}.",
            hint=f"Give an object, {name:.80}(...), not its class."
            if inspect.isclass(handler)
            else f"Give `async def handle({argument})`; functools.partial(handle, ...) fills in other parameters.",
            code="bad_handler",
        ) from None


def refuse_unfinished(answer: object) -> None:
    """Raise TypeError if a handler returned something that should have been awaited or looped over.

    The caller counts that as a failed try: nothing of such work has run, so counting it as done would lose the event. A
    coroutine is closed, so that Python does not warn that it was never awaited. A task, or work given to an executor,
    is cancelled; if it has ended already, its result counts, and its error is raised.
    """
    if answer is None:
        return
    if isinstance(answer, asyncio.Future) and answer.done():
        answer.result()
        return
    if inspect.isgenerator(answer) or inspect.isasyncgen(answer):
        raise TypeError(f"the handler returned a generator, {answer!r:.80}, and nothing of it was run")
    found = list(answer) if isinstance(answer, (list, tuple, set, frozenset)) else [answer]
    waiting = [one for one in found if inspect.isawaitable(one)]
    if not waiting:
        for one in found:
            if isinstance(one, concurrent.futures.Future):
                _refuse_work_elsewhere(one)
        return
    what = f"{waiting[0]!r:.120}"
    is_task = isinstance(waiting[0], asyncio.Future)
    for one in waiting:
        end_unawaited(one)
    if is_task:
        raise TypeError(f"the handler returned before {what} was done, which is cancelled: await it in the handler")
    raise TypeError(
        f"the handler returned {what} without awaiting it, and nothing of it was run: write `await` before the call"
    )


def _refuse_work_elsewhere(work: concurrent.futures.Future[Any]) -> None:
    """Raise the error of work given to an executor if it has ended with one; raise TypeError if it has not ended."""
    if work.done():
        work.result()
        return
    became = "which is cancelled" if work.cancel() else "which goes on, and cannot be cancelled"
    raise TypeError(
        f"the handler returned before {work!r:.80} was done, {became}: wait for its result() in the handler"
    )


def end_unawaited(waiting: Any) -> None:
    """Close a coroutine that nobody will await, or cancel a task.

    Errors raised by closing or cancelling are ignored.
    """
    with contextlib.suppress(Exception):
        if inspect.iscoroutine(waiting):
            waiting.close()
        elif isinstance(waiting, asyncio.Future | concurrent.futures.Future):
            waiting.cancel()


Handler = Callable[[Any], Any]
Run = Callable[[Any], Awaitable[Any]]
ANY_TYPE = "*"
BAD = "bad_handler"
FORMS = 'Give `async def handle(event)`, or {"order.created": handle, ...}; "*" takes all other types.'


class Reject(FenceholdError):
    """The error that a handler raises when another try is pointless: the event becomes a dead letter at once."""

    code = "rejected"

    def __str__(self) -> str:
        """Return the message and hint, without the error code, because the class name says the same."""
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
        """Return the name of this event's handler, for logs, such as `app.send_mail`."""
        return self._names.get(claim.event_type) or self._names.get(ANY_TYPE, "")

    def is_on_thread(self, task: asyncio.Task[Any] | None) -> bool:
        """Return whether this task is running a handler on a thread, which cannot be stopped."""
        return task in self._threaded

    def close(self) -> None:
        """Call no more handlers. Threads end when their functions return; tasks no longer wait for those threads."""
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
        """Wait until the handler's thread has returned or `close` was called.

        A cancel of the waiting task is ignored.
        """
        while not (future.done() or self._is_closed):
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait([future])

    def _on_the_loop(self, handler: Handler) -> Run:
        """Return the async function that runs this handler on the event loop.

        For one handler it is always the same object, because events are batched by it.
        """

        async def on_the_loop(event: Any) -> None:
            refuse_unfinished(await handler(event))

        return self._on_loop.setdefault(id(handler), on_the_loop)


def is_async(handler: Handler) -> bool:
    while hasattr(handler, "func"):  # functools.partial
        handler = handler.func
    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(getattr(handler, "__call__", None))  # noqa: B004


def name_of(handler: Handler) -> str:
    """Return the handler's module and qualified name, as in `app.send_mail`.

    For a callable object, they are those of its class.
    """
    while hasattr(handler, "func"):  # functools.partial
        handler = handler.func
    found: Any = handler if hasattr(handler, "__qualname__") else type(handler)
    return f"{found.__module__}.{found.__qualname__}"
