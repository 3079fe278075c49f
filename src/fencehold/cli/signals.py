"""Signals: to `fencehold run` the command's once it runs, ours while we still wait; to a worker a request to stop."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable

FORWARDED = (
    signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGWINCH,
)  # fmt: skip
# Its default is to be ignored: resizing a window must not end the waiting.
HARMLESS = (signal.SIGWINCH,)


class SignalDesk:
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


class StopDesk:
    """The first signal stops in order, the second `at_once`. What the caller told us to ignore stays ignored."""

    def __init__(self, at_once: Callable[[], object]) -> None:
        loop = asyncio.get_running_loop()
        self.is_asked = False
        self._stop: Callable[[], object] = lambda: None
        self._at_once = at_once
        for signum in STOPPING:
            if signal.getsignal(signum) is not signal.SIG_IGN:
                loop.add_signal_handler(signum, self._came)

    def stop_by(self, stop: Callable[[], object]) -> None:
        """From now on; at once if it was asked for already."""
        self._stop = stop
        if self.is_asked:
            stop()

    def _came(self) -> None:
        if self.is_asked:
            self._at_once()
        else:
            self.is_asked = True
            self._stop()
