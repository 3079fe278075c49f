"""Hints: notifications of the store that something changed. A lost or a false hint costs time, not safety."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

Hint = Callable[[str, str], None]

ACQUIRED, RELEASED, ASKED, ADDED, UNKNOWN = "acquired", "released", "asked", "added", "unknown"


class WakeupPort(Protocol):
    def on_hint(self, hint: Hint) -> None:
        """Register `hint`: `hint(what, name)` is called when the store reports a change, on the present event loop.

        `what` is ACQUIRED, RELEASED or ASKED (to step down) for a lease, and `name` is the lease's name. `what` is
        ADDED for events, and the backend chooses `name`. `what` is UNKNOWN if anything may have changed: check
        everything.
        """
        ...

    async def listen(self, limit_s: float) -> bool:
        """Start to listen, if that has not been done, and return True. False if this store cannot notify."""
        ...
