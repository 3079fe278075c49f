"""A SIGTERM that comes while the program is still being loaded: kept until there is something that can be stopped.

Loading takes the better part of a second. Without this the signal would end the process without a line, with 143, or,
as process 1 of a container, do nothing at all.
"""

from __future__ import annotations

import os
import signal


class EarlyStop:
    def __init__(self) -> None:
        self._is_asked = self._is_over = False

    def listen(self) -> None:
        """Unless somebody has decided otherwise what the signal does."""
        if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            signal.signal(signal.SIGTERM, self._came)

    def hand_over(self) -> None:
        """Others heed the signal now; what came before is told them."""
        self._is_over = True
        if self._is_asked:
            self._is_asked = False
            signal.raise_signal(signal.SIGTERM)

    def _came(self, signum: int, _frame: object) -> None:
        if self._is_over:  # at the very end, after the others: as if nobody listened
            signal.signal(signum, signal.SIG_DFL)
            os.kill(os.getpid(), signum)
        self._is_asked = True


EARLY_STOP = EarlyStop()
