"""Runs a command until a signal: the first signal stops it gracefully, the second at once."""

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
    """Run `run` and return its exit code. `run` first registers its graceful-stop function."""
    service = Service()
    work = asyncio.ensure_future(run(service.stop_by))
    # Until it does, a signal cancels it: nothing has begun yet that needs a graceful stop.
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
    """Handles signals: the event loop stops the work gracefully; the watchdog ends the process if the loop cannot."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._watchdog = Watchdog()
        self._is_stopping = False
        self.signals = StopSignals(first=self._asked, second=self._watchdog.at_once)

    def close(self) -> None:
        self.signals.close()
        self._watchdog.close()

    def stop_by(self, stop: Stop) -> None:
        """Register how to stop; stops at once if a signal has come already."""
        self._watchdog.stop = stop
        if self._is_stopping:
            stop.by()

    def _asked(self) -> None:
        """Runs in a signal handler."""
        self._watchdog.asked()
        with suppress(RuntimeError):  # the loop is closed: nothing runs any more
            self._loop.call_soon_threadsafe(self._stop_now)

    def _stop_now(self) -> None:
        self._is_stopping = True
        if self._watchdog.stop is not None:
            self._watchdog.stop.by()
