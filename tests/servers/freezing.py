"""Freeze a child process (SIGSTOP) at a moment at which it does not hold the write lock of a SQLite file."""

import contextlib
import os
import signal
import sqlite3
import time

SQLITE = "sqlite:///"
LIMIT_S = 30.0
#: Whoever is not frozen gives the lock back within this time, unless the disk stands still.
OTHERS_LIMIT_S = 0.5


def freeze(pid: int, url: str = "") -> None:
    """Stop the child and return when all of its threads stand still.

    A thread inside a system call ends that call first, perhaps with a lock. With the `url` of a SQLite file the child
    is thawed and frozen again until it is outside of a transaction: a frozen writer keeps everybody out, whatever
    leases say.
    """
    give_up_at = time.monotonic() + LIMIT_S
    while True:
        os.kill(pid, signal.SIGSTOP)
        os.waitid(os.P_PID, pid, os.WSTOPPED)
        if not url.startswith(SQLITE) or can_be_written(url.removeprefix(SQLITE)):
            return
        assert time.monotonic() < give_up_at, f"process {pid} is inside a transaction whenever it is frozen"
        os.kill(pid, signal.SIGCONT)


def can_be_written(path: str) -> bool:
    probe = sqlite3.connect(path, OTHERS_LIMIT_S, isolation_level=None)
    with contextlib.closing(probe), contextlib.suppress(sqlite3.OperationalError):
        probe.execute("BEGIN IMMEDIATE")
        return True
    return False
