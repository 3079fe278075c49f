"""How often a leader looks, how long it waits, and in which order it goes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class LeadershipSettings:
    """`hint_gap_s`: at a flood of hints the schedule is read this often, not once for each.

    `priorities` by target, 0 for those that are not there. `virtual_deadline_s` orders what has no deadline.
    """

    refresh_every_s: float = 1.0
    page_rows: int = 5000
    read_limit_s: float = 5.0
    drops_on_error: bool = True
    hint_gap_s: float = 0.01
    stop_limit_s: float = 10.0
    step_down_limit_s: float = 5.0
    virtual_deadline_s: float = 60.0
    priorities: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not (self.refresh_every_s > 0 and self.page_rows > 0 and self.read_limit_s > 0):
            raise ValueError("refresh_every_s, page_rows and read_limit_s must be above 0")
        if not self.virtual_deadline_s > 0:
            raise ValueError("virtual_deadline_s must be above 0")
