"""Simulates the keeper, the election and the term, unchanged, in thousands of bad minutes: same seed, same minute.

    python -m fencehold.testing.simulation --seeds 0:10000 [--fault NAME] [--trace] [--processes N]

Each seed is one schedule: three processes with clocks of their own compete for one lease in a simulated store, while
they are paused, blocked, cut off, restarted and given false hints. `referee` defines what must hold, `run` what
happens, `faults` the faults that can be planted to check that they are found.
Exit code 0: every schedule was clean; 1: a violation, with the command that repeats it and its trace.
Not promised: what no seed has tried. Nor that a schedule stays the same when the product or the simulation changes.
"""

from fencehold.testing.simulation.run import Outcome, simulate
from fencehold.testing.simulation.sweep import FAULTS, Sweep, main, replay_command, report, sweep

__all__ = ["FAULTS", "Outcome", "Sweep", "main", "replay_command", "report", "simulate", "sweep"]
