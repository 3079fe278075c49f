"""Simulates leases, locks, the outbox and items, unchanged, in thousands of bad minutes: same seed, same minute.

    python -m fencehold.testing.simulation --seeds 0:10000 [--kind KIND] [--fault NAME] [--trace] [--processes N]

Each seed is one schedule of a kind: three processes with clocks of their own use one simulated store, while they are
paused, blocked, cut off, restarted and given false hints. Of each kind, `referee` defines what must hold, `schedule`
what happens; `faults` has what can be planted to check that it is found.
Exit code 0: every schedule was clean; 1: a violation, with the command that repeats it and its trace.
Not promised: what no seed has tried. Nor that a schedule stays the same when the product or the simulation changes.
"""

from fencehold.testing.simulation.sweep import (
    FAULTS,
    KINDS,
    Outcome,
    Sweep,
    main,
    replay_command,
    report,
    simulate,
    sweep,
)

__all__ = ["FAULTS", "KINDS", "Outcome", "Sweep", "main", "replay_command", "report", "simulate", "sweep"]
