"""A child's half of the conversation with the run that started it."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator
from typing import Any


def now_s() -> float:
    """CLOCK_BOOTTIME: the same clock in every process of this machine."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def tell(event: str, **fields: Any) -> None:
    sys.stdout.write(json.dumps({"event": event, **fields}) + "\n")
    sys.stdout.flush()


async def words() -> AsyncIterator[str]:
    """What the run says, a line at a time, until it closes the pipe."""
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        yield line.decode().strip()
