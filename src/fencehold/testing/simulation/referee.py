"""The referee judges a run while it happens, by true time and by what the store executed.

Each kind of schedule (leases, locks, outbox, items) has a referee with rules of its own.
"""

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
    """The list of what happened in a run, one line of text per event. If it is switched off, it keeps no lines."""

    def __init__(self, loop: SimulationLoop, on: bool) -> None:
        self.on = on
        self.lines: list[str] = []
        self._loop = loop

    def note(self, who: str, text: str) -> None:
        if self.on:
            self.lines.append(f"{self._loop.time():9.3f} s  {who:<8} {text}")


class Broken(AssertionError):
    """Raised when an invariant, that is, a rule of the referee, does not hold."""


class Referee(ABC):
    """Judges one run. `counts` says how often each thing happened; the summary of the run shows these numbers."""

    def __init__(self, loop: SimulationLoop, trace: Trace) -> None:
        self.loop, self.trace = loop, trace
        self.violation: str | None = None
        self.counts: defaultdict[str, float] = defaultdict(float)

    def look(self) -> None:
        """Judge this instant. The loop calls this when all ready callbacks have run, before virtual time moves on.

        Raises Broken if a violation was recorded.
        """
        if self.violation is not None:
            raise Broken(self.violation)
        self.judge(self.loop._now)

    @abstractmethod
    def judge(self, now_s: float) -> None:
        """Check what must hold at every instant; `now_s` is the true time. Records a violation with `fail`."""

    def judge_end(self) -> None:
        """Check what can be judged only after the run. Records a violation with `fail`, or in `violation`."""
        return

    def must(self, holds: bool, otherwise: str) -> None:
        """Record a violation with the text `otherwise` unless `holds` is true.

        A check that is made at every instant uses `if` and `fail` instead: then the text is made only when it is
        needed.
        """
        if not holds:
            self.fail(otherwise)

    def fail(self, text: str) -> None:
        """Record a violation; only the first one of a run is kept.

        It is not raised here, where the tested code might catch it, but by `look` at the end of this turn of the loop.
        """
        if self.violation is None:
            self.violation = text
            self.trace.note("REFEREE", text)
