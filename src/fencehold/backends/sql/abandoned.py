"""A call that nobody waits for any more."""

from __future__ import annotations

import asyncio
from typing import Any


def retrieve(future: asyncio.Future[Any]) -> None:
    """Take note of the error of an abandoned call: asyncio reports one that nobody has asked for."""
    if not future.cancelled():
        future.exception()
