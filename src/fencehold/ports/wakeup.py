"""Hints that something changed. Never the truth: a lost or invented hint costs time, not safety."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

Hint = Callable[[str], None]


class WakeupPort(Protocol):
    def on_hint(self, hint: Hint) -> None:
        """Call `hint(lease_name)`, on the keeper's loop, whenever the store tells of a change."""
        ...

    async def listen(self, limit_s: float) -> bool:
        """Start (or make sure of) listening; False where this store cannot tell."""
        ...
