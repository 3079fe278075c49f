"""Runs a command until a signal: the first signal stops it gracefully, the second at once.

A watchdog ends a process that cannot end itself. It is a thread, because the event loop may be what is blocked.
"""

from __future__ import annotations

import asyncio
import math
import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NoReturn

from fencehold.cli import exit_codes
from fencehold.telemetry.logs import LOGGER

GRACE_S = 1.0  # the time for a graceful stop, after the time that handlers have
LAST_WORDS_S = 1.0  # the limit for last output: a full pipe that nobody reads must not block the exit
TICK_S = 0.05
IDS_SHOWN_MAX = 5

ASKED, AT_ONCE, OVER = "asked", "at once", "over"


@dataclass(frozen=True)
class Stop:
    """How the work is stopped gracefully, and how long that may take."""

    by: Callable[[], object]  # stops the work; called on the event loop
    within_s: float = math.inf  # from the signal: the time for the events of `left` to end
    left: Callable[[], list[str]] = list  # tracking ids of events still handled; called on any thread
    spare_s: float = 0.0  # more time, for the store to answer, if no event is left
    last_words: Callable[[], None] | None = None  # logs what a second signal cuts off; called on any thread


class Watchdog:
    """A thread that ends the process when its orders say so, whatever the event loop does.

    Signal handlers, which may interrupt any code, give it orders: so it only uses a queue whose put() takes no lock.
    """

    def __init__(self) -> None:
        self.stop: Stop | None = None
        self._told: queue.SimpleQueue[str] = queue.SimpleQueue()
        # Start it now, not in the signal handler, which may interrupt the start of another thread, and that holds a
        # lock.
        threading.Thread(target=self._watch, name="fencehold-watchdog", daemon=True).start()

    def asked(self) -> None:
        self._told.put(ASKED)

    def at_once(self) -> None:
        self._told.put(AT_ONCE)

    def close(self) -> None:
        self._told.put(OVER)

    def _watch(self) -> None:
        word = self._told.get()
        asked_s = time.monotonic()
        while word is ASKED:
            try:
                word = self._told.get(timeout=TICK_S)
            except queue.Empty:
                self._check(time.monotonic() - asked_s)
        if word is AT_ONCE:
            leave(exit_codes.INTERRUPTED, self.stop.last_words if self.stop is not None else None)

    def _check(self, waited_s: float) -> None:
        stop = self.stop
        if stop is None or waited_s < stop.within_s + GRACE_S:
            return
        left = stop.left()
        if left or waited_s >= stop.within_s + GRACE_S + stop.spare_s:
            leave(exit_codes.NO, lambda: _log_left(left, waited_s))


def _log_left(left: list[str], waited_s: float) -> None:
    fields = {"events": len(left), "tracking_ids": left[:IDS_SHOWN_MAX], "waited_s": round(waited_s, 1)}
    what = "its handlers did not end in time; the reaper recovers their events" if left else "it did not end in time"
    LOGGER.error(
        "left_behind events=%d tracking_ids=%s waited_s=%s: %s",
        len(left), ",".join(left[:IDS_SHOWN_MAX]), fields["waited_s"], what,
        extra={"event": "left_behind", "fencehold": {"event": "left_behind", **fields, "message": what}},
    )  # fmt: skip


def leave_soon(code: int) -> None:
    """Exit with this code after GRACE_S, whatever the event loop does, if the process has not ended by then.

    Callable on any thread.
    """
    timer = threading.Timer(GRACE_S, leave, (code,))
    timer.daemon = True
    timer.start()


def leave(code: int, last_words: Callable[[], None] | None = None) -> NoReturn:
    """Exit now, after calling `last_words`: a handler's thread cannot be stopped, and must not delay the exit.

    The reaper recovers the event of that handler.
    """

    def speak() -> None:
        if last_words is not None:
            last_words()
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError, AttributeError):
                stream.flush()

    try:
        speaker = threading.Thread(target=speak, name="fencehold-last-words", daemon=True)
        speaker.start()
        speaker.join(LAST_WORDS_S)
    finally:
        os._exit(code)


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
        """Register how to stop the work; stop it at once if a signal has come already."""
        self._watchdog.stop = stop
        if self._is_stopping:
            stop.by()

    def _came(self, signum: int, _frame: object) -> None:
        """Handle a signal. This may interrupt any code, so it does as little as possible."""
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
