"""How the time that a caller gives to `shutdown` or `step_down` is shared out."""

from __future__ import annotations

import asyncio

TOLD_LIMIT_S = 10.0  # for callbacks, when the caller gave no limit
DRAIN_LIMIT_S = 2.0  # for callbacks at a shutdown, however late it is


class Limit:
    """Counts from when it is made; None is no limit."""

    def __init__(self, timeout_s: float | None) -> None:
        self._timeout_s = timeout_s
        self._began_s = asyncio.get_running_loop().time()

    @property
    def of_release_s(self) -> float | None:
        """A little below: a release that hangs is cut off, and the end is told in order, before the time is over."""
        return self._timeout_s * 0.8 if self._timeout_s is not None else None

    @property
    def of_callbacks_s(self) -> float:
        """What is left for the callbacks."""
        if self._timeout_s is None:
            return TOLD_LIMIT_S
        return self._began_s + self._timeout_s - asyncio.get_running_loop().time()
