"""Signals for commands: passing them on to the command of `fencehold run`, and cancelling work at the first one.

`fencehold run` passes signals on to its command; before the command runs, a signal ends the waiting. `demo` and
`verify` clean up at a signal. What a worker does at a signal is in worker/service.py.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, TypeVar

from fencehold.model.errors import FenceholdError

T = TypeVar("T")

FORWARDED = (
    signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGWINCH,
)  # fmt: skip
# Ignored by default: resizing a window must not end the waiting.
HARMLESS = (signal.SIGWINCH,)


class SignalForwarding:
    """Passes signals on. `interrupted` gets the number of the first signal that comes before `forward_to` is called."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.interrupted: asyncio.Future[int] = loop.create_future()
        self._forward: Callable[[int], None] | None = None
        for signum in FORWARDED:
            # A signal that our caller set to be ignored (nohup, a script's background job) stays ignored, here and in
            # the command.
            if signal.getsignal(signum) is not signal.SIG_IGN:
                loop.add_signal_handler(signum, self._came, int(signum))

    def forward_to(self, forward: Callable[[int], None]) -> None:
        self._forward = forward

    def _came(self, signum: int) -> None:
        if self._forward is not None:
            self._forward(signum)
        elif signum not in HARMLESS and not self.interrupted.done():
            self.interrupted.set_result(signum)


def silent(text: str) -> None:
    """Print nothing; the default for `say`."""


async def interruptible(
    work: Coroutine[Any, Any, T], signals: Iterable[signal.Signals], say: Callable[[str], None] = silent
) -> T | int:
    """Return the result of `work`, or 128 + n if signal n ended it: the first signal cancels `work`, which cleans up.

    Further signals change nothing: the cleanup has its own time limit.
    """
    loop = asyncio.get_running_loop()
    task = asyncio.ensure_future(work)
    came: list[int] = []

    def leave(signum: int) -> None:
        if not came:
            say("interrupted: cleaning up")
            came.append(signum)
            task.cancel()

    for signum in signals:
        loop.add_signal_handler(signum, leave, int(signum))
    try:
        return await task
    except (asyncio.CancelledError, FenceholdError) as error:
        if not came:
            raise
        if isinstance(error, FenceholdError):  # the error of the work that the signal interrupted
            say(error.message)
        return 128 + came[0]
