"""Runs the library's own leases, locks, outbox and items in thousands of simulated bad minutes: same seed, same run.

    python -m fencehold.testing.simulation --seeds 0:10000 [--kind KIND] [--fault NAME] [--trace] [--processes N]

Each seed is one schedule of a kind: three processes with clocks of their own use one simulated store, while they are
paused, blocked, cut off, restarted and given false hints. For each kind, `referee` defines what must hold and
`schedule` what happens; `faults` plants errors in the product, to check that the simulation finds them.
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
