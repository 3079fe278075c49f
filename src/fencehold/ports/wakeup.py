"""Hints that something changed. Never the truth: a lost or invented hint costs time, not safety."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

Hint = Callable[[str, str], None]

ACQUIRED, RELEASED, ASKED, UNKNOWN = "acquired", "released", "asked", "unknown"


class WakeupPort(Protocol):
    def on_hint(self, hint: Hint) -> None:
        """Call `hint(what, lease_name)` on the keeper's loop when the store tells of a change; UNKNOWN: look at all."""
        ...

    async def listen(self, limit_s: float) -> bool:
        """Start (or make sure of) listening; False where this store cannot tell."""
        ...
