"""Settings of a database under which a grant that was answered can be lost in a crash, and its epoch come twice."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fencehold.ports.checkup import Condition, State


def durability(rows: Sequence[tuple[Any, ...]]) -> Condition:
    """Of what the statement `durability` answered: for each such setting what it means, and what to do."""
    if not rows:
        return Condition("durability", State.OK, "a lease that was granted survives a crash of the server")
    details, hints = zip(*rows, strict=True)
    return Condition("durability", State.WARNING, "; ".join(details), " ".join(hints))
