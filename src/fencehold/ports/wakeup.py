"""Hints that something changed. A hint is no proof: a lost or a false hint costs time, not safety."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

Hint = Callable[[str, str], None]

ACQUIRED, RELEASED, ASKED, ADDED, UNKNOWN = "acquired", "released", "asked", "added", "unknown"


class WakeupPort(Protocol):
    def on_hint(self, hint: Hint) -> None:
        """Call `hint(what, name)` when the store reports a change, on the event loop where this was called.

        For a lease `name` is its name. For events `what` is ADDED, and `name` is a text of the backend's. UNKNOWN:
        anything may have changed, check all.
        """
        ...

    async def listen(self, limit_s: float) -> bool:
        """Start to listen, or make sure that it does already. False if this store cannot notify."""
        ...
