"""Sets the hint of an error that asks for a transaction: how to begin one on the kind of connection the caller gave."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, TypeVar

from fencehold.backends.sql import caller_session as sql_session
from fencehold.model.errors import ConfigurationError

T = TypeVar("T")

OUTSIDE = ("fence_outside_transaction", "add_outside_transaction")


def advised(given: object, ask: Callable[[], Awaitable[T]]) -> Awaitable[T]:
    """Return what `ask` returns. If it raises an error that asks for a transaction, set the hint for `given`."""
    with _advice(given):
        pending = ask()
    return Advised(given, pending) if inspect.iscoroutine(pending) else pending


class Advised(Coroutine[Any, Any, T]):
    """The same for a coroutine, while it is awaited.

    Not an `async def`: that would be one more coroutine, left behind with a warning if it is never awaited.
    """

    def __init__(self, given: object, pending: Coroutine[Any, Any, T]) -> None:
        self._given, self._pending = given, pending

    def __await__(self) -> Generator[Any, Any, T]:
        with _advice(self._given):
            return (yield from self._pending.__await__())

    def send(self, value: Any, /) -> Any:
        with _advice(self._given):
            return self._pending.send(value)

    def throw(self, kind: Any, value: Any = None, trace: TracebackType | None = None, /) -> Any:
        with _advice(self._given):
            return self._pending.throw(kind if value is None else value)

    def close(self) -> None:
        self._pending.close()


@contextmanager
def _advice(given: object) -> Iterator[None]:
    try:
        yield
    except ConfigurationError as error:
        if error.code in OUTSIDE and (how := begin_on(given)):
            error.hint = how
        raise


def begin_on(given: Any) -> str:
    """Return how to begin a transaction on `given`; empty if the error's own hint, for the plain driver, is best."""
    if sql_session.is_of(given, "django"):
        return "Do it, and your own writes, inside `with transaction.atomic():`, in the same thread."
    if not sql_session.is_of(given, "sqlalchemy"):
        return ""
    with_ = "async with" if sql_session.is_of(given, "sqlalchemy.ext.asyncio") else "with"
    is_session = sql_session.is_of(given, "sqlalchemy.orm") or hasattr(given, "sync_session")
    begin = f"`{with_} {'session' if is_session else 'connection'}.begin():`"
    return (
        f"Do it, and your own writes, inside {begin}, on an engine that is not in autocommit "
        '(isolation_level="AUTOCOMMIT", or the driver\'s own autocommit).'
    )
