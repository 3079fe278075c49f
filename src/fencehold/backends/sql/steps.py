"""Runs a generator without I/O ("steps"): it yields requests to the database, and gets the rows of each back."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from typing import TypeVar

A = TypeVar("A")
R = TypeVar("R")
T = TypeVar("T")


def driven(steps: Generator[A, R, T], ask: Callable[[A], R]) -> T:
    """Run the steps and return their result; `ask` is called with each request, and returns its rows."""
    try:
        asked = next(steps)
        while True:
            asked = steps.send(ask(asked))
    except StopIteration as end:
        result: T = end.value
        return result


async def awaited(steps: Generator[A, R, T], ask: Callable[[A], Awaitable[R]]) -> T:
    """Run the steps and return their result; `ask` is awaited with each request, and returns its rows."""
    try:
        asked = next(steps)
        while True:
            asked = steps.send(await ask(asked))
    except StopIteration as end:
        result: T = end.value
        return result
