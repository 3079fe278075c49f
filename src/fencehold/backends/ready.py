"""An awaitable whose result is already known, so that one `await` works for sync and async connections."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Ready(Generic[T]):
    def __init__(self, value: T) -> None:
        self._value = value

    def __await__(self) -> Generator[Any, None, T]:
        yield from ()  # makes this a generator, which an awaitable needs
        return self._value
