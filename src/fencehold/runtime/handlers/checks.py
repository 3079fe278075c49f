"""Checks of a handler: before it is called, and of the value it returned."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import inspect
from collections.abc import Callable
from typing import Any

from fencehold.model.errors import ConfigurationError


def check_callable(handler: Callable[[Any], Any], argument: str = "event") -> None:
    """Raise ConfigurationError (`bad_handler`) for a handler that yields, or that cannot be called with one argument.

    A callable whose parameters Python cannot read (some are written in C) is accepted.
    """
    _check_is_no_generator(handler)
    _check_takes_one(handler, argument)


def _check_is_no_generator(handler: Callable[[Any], Any]) -> None:
    """Raise for a generator function: calling it does not run its body."""
    for called in (handler, getattr(handler, "__call__", None)):  # noqa: B004
        if inspect.isgeneratorfunction(called) or inspect.isasyncgenfunction(called):
            raise ConfigurationError(
                f"{handler!r:.80} is a generator: calling it runs nothing of it.",
                hint="Take the `yield` out of the handler, or loop over the generator in a function of its own.",
                code="bad_handler",
            )


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

    The caller counts that as a failed try: nothing of it has run, so counting it as done would lose the event. A
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
    """For work given to an executor: raise its error if it has ended with one; raise TypeError if it has not ended."""
    if work.done():
        work.result()
        return
    became = "which is cancelled" if work.cancel() else "which goes on, and cannot be cancelled"
    raise TypeError(
        f"the handler returned before {work!r:.80} was done, {became}: wait for its result() in the handler"
    )


def end_unawaited(waiting: Any) -> None:
    """Close a coroutine that nobody will await, or cancel a task. Errors that this raises are ignored."""
    with contextlib.suppress(Exception):
        if inspect.iscoroutine(waiting):
            waiting.close()
        elif isinstance(waiting, asyncio.Future | concurrent.futures.Future):
            waiting.cancel()
