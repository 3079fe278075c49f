"""Keeps a SIGTERM that comes while the program is still being loaded, until something can handle it.

Loading takes most of a second. Otherwise the signal would end the process with exit code 143 and without a log line; if
it is process 1 of a container, the process would ignore the signal.
"""

from __future__ import annotations

import os
import signal


class EarlyStop:
    def __init__(self) -> None:
        self._is_asked = self._is_over = False

    def listen(self) -> None:
        """Catch SIGTERM from now on. Does nothing if the signal is ignored or has a handler already."""
        if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            signal.signal(signal.SIGTERM, self._came)

    def hand_over(self) -> None:
        """Raise a SIGTERM that came earlier again; call this when another handler for it is set."""
        self._is_over = True
        if self._is_asked:
            self._is_asked = False
            signal.raise_signal(signal.SIGTERM)

    def _came(self, signum: int, _frame: object) -> None:
        if self._is_over:  # at the very end, when no other handler is set: let the signal end the process
            signal.signal(signum, signal.SIG_DFL)
            os.kill(os.getpid(), signum)
        self._is_asked = True


EARLY_STOP = EarlyStop()
