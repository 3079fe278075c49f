"""Judges a run while it happens, by true time and by what the store executed. Each kind has its own rules."""

from __future__ import annotations

import datetime as dt
from abc import ABC, abstractmethod
from collections import defaultdict

from fencehold.testing.simulation.loop import SimulationLoop

BODY_STOP_S_MAX = 0.5  # how long the simulated user's own clean-up may take
SLACK_S = 0.1
ROUNDING_S = 1e-5  # the store's times are whole microseconds
SMALL_DRIFT = 1.02
LONG_AGO = dt.datetime.min.replace(tzinfo=dt.UTC)  # stands for the end of a lease when there is none


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
    """Raised when an invariant does not hold."""


class Referee(ABC):
    """Judges one run. `counts`: how often each thing happened; they are shown in the summary of the run."""

    def __init__(self, loop: SimulationLoop, trace: Trace) -> None:
        self.loop, self.trace = loop, trace
        self.violation: str | None = None
        self.counts: defaultdict[str, float] = defaultdict(float)

    def look(self) -> None:
        """Called when all that was ready has run, before time moves on. Raises Broken after a violation."""
        if self.violation is not None:
            raise Broken(self.violation)
        self.judge(self.loop._now)

    @abstractmethod
    def judge(self, now_s: float) -> None:
        """Check what must hold at every instant."""

    def judge_end(self) -> None:
        """Check what can be judged only after the run."""
        return

    def must(self, holds: bool, otherwise: str) -> None:
        """Fail unless this holds. In a check made at every instant use `if` and `fail`, which make no text in vain."""
        if not holds:
            self.fail(otherwise)

    def fail(self, text: str) -> None:
        """Record a violation. It is raised at the end of this turn of the loop: here the tested code might catch it."""
        if self.violation is None:
            self.violation = text
            self.trace.note("REFEREE", text)
