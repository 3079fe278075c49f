"""Finds settings of a database with which a crash can lose a granted lease, so that its epoch is granted twice."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fencehold.ports.checkup import Condition, State


def durability(rows: Sequence[tuple[Any, ...]]) -> Condition:
    """Return the finding for `fencehold doctor` from the rows of the statement `durability`.

    Each row is one risky setting: what it means, and what to do. No row means that all is well.
    """
    if not rows:
        return Condition("durability", State.OK, "a lease that was granted survives a crash of the server")
    details, hints = zip(*rows, strict=True)
    return Condition("durability", State.WARNING, "; ".join(details), " ".join(hints))
