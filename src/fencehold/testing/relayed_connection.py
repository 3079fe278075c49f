"""Parts of the fault proxy: one connection with its two streams, and a fault that waits for certain bytes."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable, Coroutine
from contextlib import suppress
from enum import Enum
from typing import Any

PATTERN_BYTES_MAX = 4_096
VERB_WITHIN_S = 10.0
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


class Direction(Enum):
    TO_SERVER = "to_server"
    TO_CLIENT = "to_client"


class Fault(Enum):
    """The faults that `when_seen` can apply when it has seen its bytes."""

    CUT = "cut"  # every connection reset, new ones refused until heal()
    CLOSE_ALL = "close_all"  # every connection ended by FIN
    FREEZE = "freeze"
    DROP_ANSWERS = "drop_answers"
    DROP_REQUESTS = "drop_requests"
    RESET_ONE = "reset_one"  # only the connection the bytes passed through; all others go on


class Trip:
    """A fault that waits until certain bytes pass through the proxy. `wait()` returns once the fault is in force."""

    def __init__(self, pattern: bytes, fault: Fault, direction: Direction) -> None:
        if not 0 < len(pattern) <= PATTERN_BYTES_MAX:
            raise ValueError(f"a pattern has 1 to {PATTERN_BYTES_MAX} bytes, not {len(pattern)}")
        self.pattern = pattern
        self.fault = fault
        self.direction = direction
        self._done = asyncio.Event()

    @property
    def tripped(self) -> bool:
        return self._done.is_set()

    async def wait(self, timeout_s: float = VERB_WITHIN_S) -> None:
        """Wait until the bytes have passed and the fault is in force.

        Raises TimeoutError if they do not pass in time.
        """
        async with asyncio.timeout(timeout_s):
            await self._done.wait()

    def finish(self) -> None:
        self._done.set()


class ThreadedTrip:
    """A `Trip`, that is, a fault that waits for certain bytes, as seen from a thread other than the proxy's."""

    def __init__(self, trip: Trip, await_on_thread: Callable[[Coroutine[Any, Any, None], float], None]) -> None:
        self._trip = trip
        self._await_on_thread = await_on_thread

    @property
    def tripped(self) -> bool:
        return self._trip.tripped

    def wait(self, timeout_s: float = VERB_WITHIN_S) -> None:
        """Wait until the bytes have passed and the fault is in force.

        Raises TimeoutError if they do not pass in time.
        """
        self._await_on_thread(self._trip.wait(timeout_s), timeout_s + VERB_WITHIN_S)


class Connection:
    """One client's connection to the proxy and the proxy's connection to the server, forwarded by two tasks."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader_of: dict[Direction, asyncio.StreamReader] = {Direction.TO_SERVER: reader}
        self.writer_of: dict[Direction, asyncio.StreamWriter] = {Direction.TO_CLIENT: writer}
        self.tail_of: dict[Direction, bytes] = dict.fromkeys(Direction, b"")
        self.task: asyncio.Task[None] | None = None
        self.ended = False
        self.lost_bytes = False
        self.lose_answers = False
        self.answer_lost = asyncio.Event()

    def add_server(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader_of[Direction.TO_CLIENT] = reader
        self.writer_of[Direction.TO_SERVER] = writer

    def first_seen(self, trips: list[Trip], chunk: bytes, direction: Direction) -> Trip | None:
        """Return the first trip whose bytes end in this chunk, or None; the bytes may have begun in earlier chunks."""
        tail = self.tail_of[direction]
        window = tail + chunk
        self.tail_of[direction] = window[-PATTERN_BYTES_MAX:]
        for trip in trips:
            start = max(0, len(tail) + 1 - len(trip.pattern))
            if trip.direction is direction and window.find(trip.pattern, start) >= 0:
                return trip
        return None

    def end(self, *, reset: bool) -> None:
        """Close both sockets, at the loop's next turn. Bytes that are still held back are not forwarded."""
        self.ended = True
        for writer in self.writer_of.values():
            if reset:
                raw = writer.get_extra_info("socket")
                with suppress(OSError):
                    raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
                writer.transport.abort()
            else:
                writer.close()
        self.answer_lost.set()
        if self.task is not None:
            self.task.cancel()

    async def closed(self) -> None:
        for writer in self.writer_of.values():
            with suppress(OSError):
                await writer.wait_closed()
