"""Finds the socket of a driver that does not expose it, watches it for its end, and shuts it down.

The driver's calls cannot be interrupted, and it does not report that an idle connection has ended; with the socket both
are possible. The socket is found by the number of bytes that it receives for an answer of known length. That works only
where the system lists a process's sockets and counts their bytes (Linux). Elsewhere no socket is found, and the next
probe notices the end of the connection.
"""

from __future__ import annotations

import asyncio
import secrets
import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TypeVar

from fencehold.backends.sqlserver.sockets import to_port

T = TypeVar("T")

_TCP_INFO = getattr(socket, "TCP_INFO", 0)
_TCP_INFO_BYTES = 192
_BYTES_RECEIVED = struct.Struct("=Q")
_BYTES_RECEIVED_AT = 128  # in Linux's struct tcp_info, since 4.2
#: In characters of two bytes: at most 8,000 bytes, the most that the server repeats without a longer type.
_PADDING_MIN, _PADDING_CHOICES = 2_000, 1_900
#: The bytes around the padding in the answer: headers of the protocol and of TLS.
_AROUND_BYTES_MAX = 700


class Wire:
    """A second handle on the driver's socket. It stays open when the driver closes its own handle."""

    def __init__(self, handle: socket.socket) -> None:
        self._handle = handle
        self._watching: asyncio.AbstractEventLoop | None = None

    def cut(self) -> None:
        """Shut the socket down: the server sees the end at once, and a call that hangs on this socket returns."""
        self._unwatch()  # before the close: afterwards the event loop could not remove it, and would spin
        with suppress(OSError):
            self._handle.shutdown(socket.SHUT_RDWR)
        self._handle.close()

    @contextmanager
    def watched(self) -> Iterator[asyncio.Event]:
        """Yield an event that is set when the server closes the connection.

        Use it only while no call is under way on it.
        """
        ended = asyncio.Event()
        if self._handle.fileno() < 0:
            ended.set()
        else:
            self._watching = asyncio.get_running_loop()
            self._watching.add_reader(self._handle, self._readable, ended)
        try:
            yield ended
        finally:
            self._unwatch()

    def _readable(self, ended: asyncio.Event) -> None:
        self._unwatch()  # unrequested data stays in the socket for the driver, and would wake us again and again
        try:
            if self._handle.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT):
                return
        except BlockingIOError:
            return
        except OSError:
            pass
        ended.set()

    def _unwatch(self) -> None:
        loop, self._watching = self._watching, None
        if loop is not None:
            loop.remove_reader(self._handle)


def found(port: int, ask: Callable[[int], T]) -> tuple[T, Wire | None]:
    """Return the result of `ask(padding)`, and the one socket to `port` that received an answer of that length.

    `ask` must make the server answer with `padding` characters. The socket is None if none, or more than one, fits.
    """
    padding = _PADDING_MIN + secrets.randbelow(_PADDING_CHOICES)
    before = {name: _received(handle) for name, handle in to_port(port)}
    answer = ask(padding)
    ours = [
        handle.dup()
        for name, handle in to_port(port)
        if name in before and 0 <= _received(handle) - before[name] - 2 * padding <= _AROUND_BYTES_MAX
    ]
    if len(ours) == 1:
        return answer, Wire(ours[0])
    for handle in ours:
        handle.close()
    return answer, None


def _received(handle: socket.socket) -> int:
    """Return the number of bytes received on the socket so far; 0 if the system does not count them."""
    try:
        info = handle.getsockopt(socket.IPPROTO_TCP, _TCP_INFO, _TCP_INFO_BYTES)
        return int(_BYTES_RECEIVED.unpack_from(info, _BYTES_RECEIVED_AT)[0])
    except (OSError, struct.error):
        return 0
