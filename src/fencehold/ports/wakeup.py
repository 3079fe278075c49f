"""Hints that something changed. A hint is no proof: a lost or a false hint costs time, not safety."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

Hint = Callable[[str, str], None]

ACQUIRED, RELEASED, ASKED, ADDED, UNKNOWN = "acquired", "released", "asked", "added", "unknown"


class WakeupPort(Protocol):
    def on_hint(self, hint: Hint) -> None:
        """Call `hint(what, name)` on the loop that asked when the store reports a change; UNKNOWN: check all.

        Of a lease with its name; of events, ADDED, with whatever the backend says.
        """
        ...

    async def listen(self, limit_s: float) -> bool:
        """Start to listen, or make sure that it does already. False if this store cannot notify."""
        ...
