"""The counts of pending intents that are late, as a value."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Backlog:
    """How many intents are late, by the database's clock. Counts only the longest due, up to the caller's maximum."""

    overdue: int  # pending, and due for longer than the caller's limit
    oldest_due_s: float  # how long the longest due intent has been due; 0: none is due
    past_deadline: int  # pending, past their deadline, and no attempt under way
