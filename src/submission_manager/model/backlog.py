"""Pending intents that wait beyond their time, as a value."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Backlog:
    """What waits beyond its time, by the database's clock: of the longest due, at most as many as were asked for."""

    overdue: int  # pending, and due for longer than the caller is patient
    oldest_due_s: float  # how long the longest due has been so; 0: none is due
    past_deadline: int  # pending, past their deadline, and no attempt under way
