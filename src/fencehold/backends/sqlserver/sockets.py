"""The sockets below a driver that does not show them, cut when nothing else ends a call."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator

_OPEN_FILES = "/proc/self/fd"


def cut_all(port: int) -> None:
    """Every connection of this process to that port ends now; where the system does not list them (not Linux), none."""
    for _, handle in to_port(port):
        with contextlib.suppress(OSError):  # ended meanwhile
            handle.shutdown(socket.SHUT_RDWR)


def to_port(port: int) -> Iterator[tuple[str, socket.socket]]:
    """The system's name of each socket of this process to that port, and a handle on it.

    The handle is closed when the next one is asked for: it would keep open what others close.
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
