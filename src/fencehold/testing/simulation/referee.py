"""What judges a run while it happens, by true time and by what the store executed. Each kind has its own rules."""

from __future__ import annotations

import datetime as dt
from abc import ABC, abstractmethod
from collections import defaultdict

from fencehold.testing.simulation.loop import SimulationLoop

BODY_STOP_S_MAX = 0.5  # how long the simulated user's own clean-up may take
SLACK_S = 0.1
ROUNDING_S = 1e-5  # the store's times are whole microseconds
SMALL_DRIFT = 1.02
LONG_AGO = dt.datetime.min.replace(tzinfo=dt.UTC)  # when a lease ended that nobody has


class Trace:
    """What happened, line by line. Switched off, it costs nothing and keeps nothing."""

    def __init__(self, loop: SimulationLoop, on: bool) -> None:
        self.on = on
        self.lines: list[str] = []
        self._loop = loop

    def note(self, who: str, text: str) -> None:
        if self.on:
            self.lines.append(f"{self._loop.time():9.3f} s  {who:<8} {text}")


class Broken(AssertionError):
    """An invariant does not hold."""


class Referee(ABC):
    """`counts` are shown as the sum of a run: how much of each thing happened."""

    def __init__(self, loop: SimulationLoop, trace: Trace) -> None:
        self.loop, self.trace = loop, trace
        self.violation: str | None = None
        self.counts: defaultdict[str, float] = defaultdict(float)

    def look(self) -> None:
        """Called whenever something happened and all of it is done, before time moves on."""
        if self.violation is not None:
            raise Broken(self.violation)
        self.judge(self.loop._now)

    @abstractmethod
    def judge(self, now_s: float) -> None:
        """Whatever must hold at every instant."""

    def judge_end(self) -> None:
        """What is judged once all is over."""
        return

    def must(self, holds: bool, otherwise: str) -> None:
        """Fail unless this holds. For what is judged at every instant write `if`: it makes no text."""
        if not holds:
            self.fail(otherwise)

    def fail(self, text: str) -> None:
        """Record a violation. It is raised at the end of this turn of the loop: here the tested code might catch it."""
        if self.violation is None:
            self.violation = text
            self.trace.note("REFEREE", text)
