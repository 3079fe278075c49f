"""A command that works until it is told to stop: in order at the first signal, at once at the second."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import NoReturn

from fencehold.cli import exit_codes
from fencehold.cli.signals import StopDesk
from fencehold.runtime.store import Store

# Any name will do: what is asked is whether the lease table is there, before work begins that needs it.
PROBE = "fencehold probe"

Stop = Callable[[], None]
Run = Callable[[Callable[[Stop], None]], Awaitable[int]]


async def serve(run: Run) -> int:
    """The exit code of `run`, which says, once it can be stopped in order, how."""
    desk = StopDesk(at_once=lambda: leave(exit_codes.INTERRUPTED))
    work = asyncio.ensure_future(run(desk.stop_by))
    # Until then nothing has begun that would need an orderly end.
    desk.stop_by(work.cancel)
    try:
        return await work
    except asyncio.CancelledError:
        if desk.is_asked:
            return exit_codes.OK
        raise


def leave(code: int) -> NoReturn:
    """Now: a handler's thread cannot be stopped, and must not hold up the exit. The reaper has its event."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


async def must_have_leases(store: Store) -> None:
    """Raises what is wrong with the database or its lease table."""
    await store.leases.read(PROBE)
