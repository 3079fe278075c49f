"""The limit on open files, and how many of them may be clients' connections."""

from __future__ import annotations

import sys
from contextlib import suppress

from submission_manager.settings import CONNECTIONS_MOST

FILES_WANTED = 65_536  # more than the most connections and everything else can need
RESERVE = 256  # for the database, files, webhooks, and connections that are just being refused


def raise_limit() -> None:
    """Raise the limit on open files as far as this user may."""
    if sys.platform == "win32":
        return
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = FILES_WANTED if hard == resource.RLIM_INFINITY else min(hard, FILES_WANTED)
    if soft != resource.RLIM_INFINITY and soft < most:
        with suppress(ValueError, OSError):  # then the limit stays, and fewer connections are accepted
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def files_max() -> int:
    """How many files the process may have open."""
    if sys.platform == "win32":
        return FILES_WANTED
    import resource

    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return FILES_WANTED if soft == resource.RLIM_INFINITY else soft


def connections_max(asked: int | None, files_max: int, calls_max: int) -> int:
    """The number asked for, but never so many that no file is left for the database and the gateway calls."""
    room = max(files_max - RESERVE - calls_max, files_max // 4, 1)
    return min(CONNECTIONS_MOST if asked is None else asked, room)
