"""Detects forks. A forked child holds no lease: every lease of its parent is invalid in the child from the start."""

from __future__ import annotations

import os

_generation = 0


def _born() -> None:
    global _generation
    _generation += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_born)


def generation() -> int:
    """A number that differs between a parent and its forked child."""
    return _generation
