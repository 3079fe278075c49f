"""The socket below a driver that does not show it: known by its traffic, watched for its end, and cut.

The driver's calls cannot be interrupted, and nothing tells that a resting connection has ended. The socket can do both.
Only where the system lists a process's sockets and counts their bytes (Linux); elsewhere none is found, and an end is
noticed by the next probe.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TypeVar

T = TypeVar("T")

_OPEN_FILES = "/proc/self/fd"
_TCP_INFO = getattr(socket, "TCP_INFO", None)
_TCP_INFO_BYTES = 192
_BYTES_RECEIVED = struct.Struct("=Q")
_BYTES_RECEIVED_AT = 128  # in Linux's struct tcp_info, since 4.2
#: Two bytes to a character: at most 8,000 bytes, which is what the server repeats without a longer type.
_PADDING_MIN, _PADDING_CHOICES = 2_000, 1_900
#: What stands around the padding in the answer: the protocol's own headers, and those of TLS.
_AROUND_BYTES_MAX = 700


class Wire:
    """A second handle on the driver's socket: it stays ours when the driver closes its own."""

    def __init__(self, handle: socket.socket) -> None:
        self._handle = handle
        self._watching: asyncio.AbstractEventLoop | None = None

    def cut(self) -> None:
        """The server sees the end at once, and a call that hangs on this socket returns."""
        self._unwatch()  # while the handle is open: the loop could not let go of it any more, and would spin
        with suppress(OSError):
            self._handle.shutdown(socket.SHUT_RDWR)
        self._handle.close()

    @contextmanager
    def watched(self) -> Iterator[asyncio.Event]:
        """The event is set when the other side has closed; for a connection on which nothing is under way."""
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
        self._unwatch()  # what is said unasked stays for the driver, and would wake us again and again
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
    """What `ask(padding)` gave, and the socket to that port on which an answer of that length came, if exactly one."""
    padding = _PADDING_MIN + secrets.randbelow(_PADDING_CHOICES)
    before = {name: received for name, _, received in _sockets_to(port)}
    answer = ask(padding)
    ours = [
        fd
        for name, fd, received in _sockets_to(port)
        if name in before and 0 <= received - before[name] - 2 * padding <= _AROUND_BYTES_MAX
    ]
    return answer, Wire(socket.socket(fileno=os.dup(ours[0]))) if len(ours) == 1 else None


def _sockets_to(port: int) -> Iterator[tuple[str, int, int]]:
    """The system's name of each TCP socket of this process, its descriptor, and how many bytes came on it so far."""
    if _TCP_INFO is None or not os.path.isdir(_OPEN_FILES):
        return
    for fd in map(int, os.listdir(_OPEN_FILES)):
        # Whatever it was may be closed by now. Our handle lasts for a moment only: it would keep the others' open.
        with suppress(OSError, struct.error):
            name = os.readlink(f"{_OPEN_FILES}/{fd}")
            if not name.startswith("socket:"):
                continue
            with socket.socket(fileno=os.dup(fd)) as handle:
                received = _received(handle)
                is_there = handle.getpeername()[1] == port
            if is_there:
                yield name, fd, received


def _received(handle: socket.socket) -> int:
    info = handle.getsockopt(socket.IPPROTO_TCP, int(_TCP_INFO or 0), _TCP_INFO_BYTES)
    return int(_BYTES_RECEIVED.unpack_from(info, _BYTES_RECEIVED_AT)[0])
