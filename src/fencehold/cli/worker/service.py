"""A command that works until it is told to stop: in order at the first signal, at once at the second."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from fencehold.cli import exit_codes
from fencehold.cli.run.watchdog import Stop, Watchdog
from fencehold.cli.signals import StopSignals

StopBy = Callable[[Stop], None]
Run = Callable[[StopBy], Awaitable[int]]


async def serve(run: Run) -> int:
    """The exit code of `run`, which says, once it can be stopped in order, how."""
    service = Service()
    work = asyncio.ensure_future(run(service.stop_by))
    # Until then nothing has begun that would need an orderly end.
    service.stop_by(Stop(work.cancel))
    try:
        return await work
    except asyncio.CancelledError:
        if service.signals.is_asked:
            return exit_codes.OK
        raise
    finally:
        service.close()


class Service:
    """What a signal does: the loop stops the work in order; the watchdog ends what the loop cannot."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._watchdog = Watchdog()
        self._is_stopping = False
        self.signals = StopSignals(first=self._asked, second=self._watchdog.at_once)

    def close(self) -> None:
        self.signals.close()
        self._watchdog.close()

    def stop_by(self, stop: Stop) -> None:
        """From now on; at once if it was asked for already."""
        self._watchdog.stop = stop
        if self._is_stopping:
            stop.by()

    def _asked(self) -> None:
        """In a signal handler."""
        self._watchdog.asked()
        with suppress(RuntimeError):  # the loop is closed: nothing runs that could be told
            self._loop.call_soon_threadsafe(self._stop_now)

    def _stop_now(self) -> None:
        self._is_stopping = True
        if self._watchdog.stop is not None:
            self._watchdog.stop.by()
