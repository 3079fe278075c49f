"""Going through every kind of connection that a caller may have."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager

from fencehold.testing.harness import Caller, Door


def through(door: Door) -> AbstractContextManager[None]:
    """Add to a failure the kind of connection it happened with."""
    return noted(f"with {door.title}")


@contextmanager
def noted(note: str) -> Iterator[None]:
    """Add the note to a failure."""
    try:
        yield
    except BaseException as error:
        error.add_note(note)
        raise


@asynccontextmanager
async def begun(door: Door) -> AsyncIterator[Caller]:
    """A connection of this kind whose transaction has begun."""
    async with door.open() as caller:
        await caller.begin()
        yield caller
