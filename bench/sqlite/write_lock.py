"""Whether anybody holds the write lock of a SQLite file in WAL mode, asked of the kernel: nothing is locked for it.

The process that asks must have no connection to the file of its own: closing a file gives up all locks it has on it.
"""

from __future__ import annotations

import fcntl
import os
import struct
import time
from dataclasses import dataclass, field

# The first of the lock bytes in the -shm file is that of the writer (https://sqlite.org/walformat.html, "WAL locks").
WRITER_BYTE = 120
FLOCK = "hhqqi"
LOOK_EVERY_S = 0.0001


@dataclass
class Held:
    """What was seen. A hold between two looks is missed; the share is right on average all the same."""

    looks: int = 0
    held: int = 0
    holds_s: list[float] = field(default_factory=list)

    @property
    def share(self) -> float:
        return self.held / self.looks

    @property
    def longest_ms(self) -> float:
        return 1000 * max(self.holds_s, default=0.0)


def watch(path: str, seconds: float) -> Held:
    question = struct.pack(FLOCK, fcntl.F_WRLCK, os.SEEK_SET, WRITER_BYTE, 1, 0)
    seen, since_s = Held(), None
    fd = os.open(f"{path}-shm", os.O_RDONLY)
    try:
        end_s = time.perf_counter() + seconds
        while (now_s := time.perf_counter()) < end_s:
            answer = struct.unpack(FLOCK, fcntl.fcntl(fd, fcntl.F_GETLK, question))
            is_held = answer[0] != fcntl.F_UNLCK
            seen.looks += 1
            seen.held += is_held
            if is_held and since_s is None:
                since_s = now_s
            elif not is_held and since_s is not None:
                seen.holds_s.append(now_s - since_s)
                since_s = None
            time.sleep(LOOK_EVERY_S)
    finally:
        os.close(fd)
    return seen
