"""Signals: to `fencehold run` the command's once it runs, ours while we still wait; to a worker a request to stop."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from typing import Any

FORWARDED = (
    signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGWINCH,
)  # fmt: skip
# Its default is to be ignored: resizing a window must not end the waiting.
HARMLESS = (signal.SIGWINCH,)


class SignalForwarding:
    """`interrupted` becomes the number of the first signal that came while there was nobody to pass it on to."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.interrupted: asyncio.Future[int] = loop.create_future()
        self._forward: Callable[[int], None] | None = None
        for signum in FORWARDED:
            # What the caller told us to ignore (nohup, a background job of a script) stays ignored, here and below.
            if signal.getsignal(signum) is not signal.SIG_IGN:
                loop.add_signal_handler(signum, self._came, int(signum))

    def forward_to(self, forward: Callable[[int], None]) -> None:
        self._forward = forward

    def _came(self, signum: int) -> None:
        if self._forward is not None:
            self._forward(signum)
        elif signum not in HARMLESS and not self.interrupted.done():
            self.interrupted.set_result(signum)


STOPPING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class StopSignals:
    """Tells of the first signal and of the second, also while a handler blocks the event loop.

    So by plain signal handlers: Python runs them between any two steps of the main thread, and in the middle of a
    sleep; those of the loop would wait for it. What the caller told us to ignore stays ignored.
    """

    def __init__(self, first: Callable[[], None], second: Callable[[], None]) -> None:
        self.is_asked = False
        self._first, self._second = first, second
        self._pid = os.getpid()
        self._before: dict[signal.Signals, Any] = {}
        for signum in STOPPING:
            if signal.getsignal(signum) is not signal.SIG_IGN:
                self._before[signum] = signal.signal(signum, self._came)

    def close(self) -> None:
        for signum, handler in self._before.items():
            signal.signal(signum, handler)

    def _came(self, signum: int, _frame: object) -> None:
        """May interrupt anything, so it does next to nothing."""
        if os.getpid() != self._pid:  # a child that a handler forked: the signal is meant for it alone
            signal.signal(signum, signal.SIG_DFL)
            os.kill(os.getpid(), signum)
        elif self.is_asked:
            self._second()
        else:
            self.is_asked = True
            self._first()
