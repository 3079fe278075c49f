"""A forked child holds nothing: whatever its parent held is over in the child, from its first instruction."""

from __future__ import annotations

import os

_generation = 0


def _born() -> None:
    global _generation
    _generation += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_born)


def generation() -> int:
    """Changes when this process turns out to be a forked child."""
    return _generation
