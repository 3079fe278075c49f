"""Checks of a job of `run_as_leader`: before anything is sent, and of the value it returned."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable
from typing import Any

from fencehold.model.errors import ConfigurationError
from fencehold.runtime.handlers.checks import check_callable, refuse_unfinished
from fencehold.runtime.handlers.handlers import is_async

BAD_JOB = "bad_job"
ASYNC_HINT = (
    "Give `async def job(term)`. A plain function cannot be stopped when its term ends: use fencehold.sync, or call it"
    " with `await asyncio.to_thread(...)` and let it ask `term.is_valid`."
)
SYNC_HINT = "Give a plain `def job(term)` that asks `term.is_valid`; an async job belongs to fencehold.connect()."


class NotAwaitable(ConfigurationError):
    """Raised after the job was called and did not return an awaitable."""


def check_async_job(job: Callable[[Any], Any]) -> None:
    """Raise ConfigurationError (`bad_job`) if the job is surely not an async function of one argument."""
    _check_callable(job, ASYNC_HINT)
    inner = _inner(job)
    if (inspect.isroutine(inner) or inspect.isclass(inner)) and not is_async(inner):
        raise ConfigurationError(f"{_name(job)} is not async.", hint=ASYNC_HINT, code=BAD_JOB)


def check_sync_job(job: Callable[[Any], Any]) -> None:
    """Raise ConfigurationError (`bad_job`) if the job is surely not a plain function of one argument."""
    _check_callable(job, SYNC_HINT)
    if is_async(_inner(job)):
        raise ConfigurationError(f"{_name(job)} is async.", hint=SYNC_HINT, code=BAD_JOB)


async def awaited(answer: Awaitable[Any]) -> Any:
    """The result of an async job. Raises NotAwaitable if it is not async, TypeError if it forgot an `await`."""
    if not inspect.isawaitable(answer):
        raise NotAwaitable(f"The job returned {answer!r:.80}: it is not async.", hint=ASYNC_HINT, code=BAD_JOB)
    value = await answer
    refuse_unfinished(value)
    return value


def returned(answer: Any) -> Any:
    """Return a plain job's result. Raises TypeError if it is something that should have been awaited."""
    refuse_unfinished(answer)
    return answer


def _check_callable(job: Callable[[Any], Any], hint: str) -> None:
    if not callable(job):
        raise ConfigurationError(f"The job is {job!r:.80}, which cannot be called.", hint=hint, code=BAD_JOB)
    try:
        check_callable(job, "term")
    except ConfigurationError as error:
        raise ConfigurationError(error.message, hint=hint, code=BAD_JOB) from None


def _inner(job: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The function inside partials and decorators."""
    while isinstance(job, functools.partial):
        job = job.func
    inner: Callable[[Any], Any] = inspect.unwrap(job)
    return inner


def _name(job: Callable[[Any], Any]) -> str:
    return f"The job {getattr(job, '__qualname__', None) or repr(job):.80}"
