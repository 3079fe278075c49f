"""Runs steps: generators without I/O that yield what they ask of the database, and get its rows back."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from typing import TypeVar

A = TypeVar("A")
R = TypeVar("R")
T = TypeVar("T")


def driven(steps: Generator[A, R, T], ask: Callable[[A], R]) -> T:
    """Return the result of the steps; `ask` answers each thing that they yield."""
    try:
        asked = next(steps)
        while True:
            asked = steps.send(ask(asked))
    except StopIteration as end:
        result: T = end.value
        return result


async def awaited(steps: Generator[A, R, T], ask: Callable[[A], Awaitable[R]]) -> T:
    """Do as `driven`, with `await`."""
    try:
        asked = next(steps)
        while True:
            asked = steps.send(await ask(asked))
    except StopIteration as end:
        result: T = end.value
        return result
