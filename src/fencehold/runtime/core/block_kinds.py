"""Base classes that raise a clear TypeError for `with` in place of `async with`, the reverse, or `await` on a store."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager, AbstractContextManager
from types import TracebackType
from typing import TYPE_CHECKING, Generic, NoReturn, TypeVar

T_co = TypeVar("T_co", covariant=True)


class AsyncBlock:
    """Base of objects for `async with`. Plain `with` raises TypeError, with a hint."""

    if not TYPE_CHECKING:  # hidden from type checkers, so that they refuse the wrong `with`

        def __enter__(self) -> NoReturn:
            raise TypeError(
                f"`with` cannot use {_named(self)}: write `async with`, or, in a program without an event loop, begin "
                "with `fencehold.sync.connect(...)`."
            )

        def __exit__(self, *exc: object) -> None:
            """Never called, because `__enter__` always raises."""


class PlainBlock:
    """Base of objects for `with`. `async with` raises TypeError, with a hint."""

    if not TYPE_CHECKING:

        async def __aenter__(self) -> NoReturn:
            raise TypeError(
                f"`async with` cannot use {_named(self)}: write `with`, or, in a program with an event loop, begin "
                "with `fencehold.connect(...)`."
            )

        async def __aexit__(self, *exc: object) -> None:
            """Never called, because `__aenter__` always raises."""


class NotAwaited:
    """Base of stores, which nobody needs to await: `await store` raises TypeError, with a hint.

    Do not use it for an object that a job may return: `__await__` makes Python treat the object as awaitable.
    """

    if not TYPE_CHECKING:

        def __await__(self) -> NoReturn:
            word, opened = (
                ("with", "store.open()") if isinstance(self, PlainBlock) else ("async with", "await store.open()")
            )
            raise TypeError(
                f"`await` cannot use {_named(self)}: write `{word} {_module(self)}.connect(...) as store:`, or "
                f"`store = {_module(self)}.connect(...)` and then `{opened}`."
            )


class AsyncTransactionBlock(AsyncBlock, AbstractAsyncContextManager[T_co, bool | None], Generic[T_co]):
    """The context manager that `term.transaction()` returns, for `async with`."""

    def __init__(self, block: AbstractAsyncContextManager[T_co, bool | None]) -> None:
        self._block = block

    async def __aenter__(self) -> T_co:
        return await self._block.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> bool | None:
        return await self._block.__aexit__(kind, error, trace)


class PlainTransactionBlock(PlainBlock, AbstractContextManager[T_co, bool | None], Generic[T_co]):
    """The context manager that `term.transaction()` returns in `fencehold.sync`, for `with`."""

    def __init__(self, block: AbstractContextManager[T_co, bool | None]) -> None:
        self._block = block

    def __enter__(self) -> T_co:
        return self._block.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> bool | None:
        return self._block.__exit__(kind, error, trace)


def _named(one: object) -> str:
    is_transaction = isinstance(one, (AsyncTransactionBlock, PlainTransactionBlock))
    return f"a {'transaction' if is_transaction else type(one).__name__} of {_module(one)}"


def _module(one: object) -> str:
    return "fencehold.sync" if isinstance(one, PlainBlock) else "fencehold"
