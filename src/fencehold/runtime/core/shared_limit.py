"""Divides the timeout of `shutdown` or `step_down` between the release and the callbacks."""

from __future__ import annotations

import asyncio

DELIVERY_LIMIT_S = 10.0  # for callbacks, when the caller gave no limit
DRAIN_LIMIT_S = 2.0  # for callbacks at a shutdown, however late it is


class Limit:
    """A timeout that starts when this object is created; None: no limit."""

    def __init__(self, timeout_s: float | None) -> None:
        self._timeout_s = timeout_s
        self._began_s = asyncio.get_running_loop().time()

    @property
    def of_release_s(self) -> float | None:
        """Seconds for the release: 80 % of the timeout; None: no limit.

        A release that hangs is then cut off early enough to call the callbacks in order before the timeout.
        """
        return self._timeout_s * 0.8 if self._timeout_s is not None else None

    @property
    def of_callbacks_s(self) -> float:
        """Seconds that are left for the callbacks."""
        if self._timeout_s is None:
            return DELIVERY_LIMIT_S
        return self._began_s + self._timeout_s - asyncio.get_running_loop().time()
