"""Runs a command until a signal: the first signal stops it gracefully, the second at once."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from fencehold.cli import exit_codes
from fencehold.cli.run.watchdog import Stop, Watchdog

StopBy = Callable[[Stop], None]
STOPPING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

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
        if service.is_asked:
            return exit_codes.OK
        raise
    finally:
        service.close()


class Service:
    """Handles signals: the event loop stops the work gracefully; the watchdog ends the process if the loop cannot.

    It uses plain signal handlers: Python runs them between any two steps of the main thread, and during a sleep; the
    event loop's handlers would wait for a loop that a handler blocks. A signal that our caller set to be ignored stays
    ignored.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._watchdog = Watchdog()
        self._is_stopping = False
        self.is_asked = False  # a signal has come
        self._pid = os.getpid()
        self._before: dict[signal.Signals, Any] = {}
        for signum in STOPPING:
            if signal.getsignal(signum) is not signal.SIG_IGN:
                self._before[signum] = signal.signal(signum, self._came)

    def close(self) -> None:
        for signum, handler in self._before.items():
            signal.signal(signum, handler)
        self._watchdog.close()

    def stop_by(self, stop: Stop) -> None:
        """Register how to stop; stops at once if a signal has come already."""
        self._watchdog.stop = stop
        if self._is_stopping:
            stop.by()

    def _came(self, signum: int, _frame: object) -> None:
        """The signal handler. It may interrupt any code, so it does as little as possible."""
        if os.getpid() != self._pid:  # a child that a handler forked: the signal is meant for it alone
            signal.signal(signum, signal.SIG_DFL)
            os.kill(os.getpid(), signum)
        elif self.is_asked:
            self._watchdog.at_once()
        else:
            self.is_asked = True
            self._watchdog.asked()
            with suppress(RuntimeError):  # the loop is closed: nothing runs any more
                self._loop.call_soon_threadsafe(self._stop_now)

    def _stop_now(self) -> None:
        self._is_stopping = True
        if self._watchdog.stop is not None:
            self._watchdog.stop.by()
