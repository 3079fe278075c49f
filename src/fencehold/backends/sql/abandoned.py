"""What to do with a call whose caller does not wait for its result any more."""

from __future__ import annotations

import asyncio
from typing import Any


def retrieve(future: asyncio.Future[Any]) -> None:
    """Read the error of an abandoned call, and do nothing with it.

    asyncio logs the error of a future that nobody has read; this prevents that.
    """
    if not future.cancelled():
        future.exception()
