"""Finds the sockets of the driver, which does not expose them, and shuts them down when nothing else ends a call."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator

_OPEN_FILES = "/proc/self/fd"


def cut_all(port: int) -> None:
    """Shut down every connection of this process to that port.

    Does nothing on a system that does not list a process's sockets (any but Linux).
    """
    for _, handle in to_port(port):
        with contextlib.suppress(OSError):  # ended meanwhile
            handle.shutdown(socket.SHUT_RDWR)


def to_port(port: int) -> Iterator[tuple[str, socket.socket]]:
    """Yield each socket of this process that is connected to that port: the system's name for it, and a handle on it.

    The handle is closed when the next socket is asked for: an open handle would keep the socket open after the driver
    closes it.
    """
    if not os.path.isdir(_OPEN_FILES):
        return
    for entry in os.listdir(_OPEN_FILES):
        with contextlib.suppress(OSError):  # closed meanwhile
            name = os.readlink(f"{_OPEN_FILES}/{entry}")
            if not name.startswith("socket:"):
                continue
            with socket.socket(fileno=os.dup(int(entry))) as handle:
                peer = handle.getpeername()
                if isinstance(peer, tuple) and peer[1] == port:
                    yield name, handle
