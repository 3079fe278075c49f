"""The leader's settings: intervals, limits, and the order of intents."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class LeadershipSettings:
    """`hint_gap_s`: the shortest time between two reads caused by hints, so that many hints cause few reads.

    `priorities`: by target; a target not in it has 0. `virtual_deadline_s` orders intents without a deadline.
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
