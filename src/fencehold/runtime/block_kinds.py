"""`with` where `async with` is meant, and the other way round: a clear error instead of Python's bare one."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn


class AsyncBlock:
    """Used by `async with` only."""

    if not TYPE_CHECKING:  # a type checker is to refuse the other kind

        def __enter__(self) -> NoReturn:
            raise TypeError(
                f"`with` cannot use {_named(self)}: write `async with`, or, in a program without an event loop, begin "
                "with `fencehold.sync.connect(...)`."
            )

        def __exit__(self, *exc: object) -> None:
            """Never called: there is no block."""


class PlainBlock:
    """Used by `with` only."""

    if not TYPE_CHECKING:

        async def __aenter__(self) -> NoReturn:
            raise TypeError(
                f"`async with` cannot use {_named(self)}: write `with`, or, in a program with an event loop, begin "
                "with `fencehold.connect(...)`."
            )

        async def __aexit__(self, *exc: object) -> None:
            """Never called: there is no block."""


def _named(one: object) -> str:
    kind = "fencehold.sync" if isinstance(one, PlainBlock) else "fencehold"
    return f"a {type(one).__name__} of {kind}"
