"""Runs the library's own leases, locks, outbox and items under simulated faults; the same seed gives the same run.

    python -m fencehold.testing.simulation --seeds 0:10000 [--kind KIND] [--fault NAME] [--trace] [--processes N]

A schedule is one simulated run, about a minute of virtual time. Its kind (leases, locks, outbox or items) and its seed
decide all that happens: three simulated processes with clocks of their own use one simulated store, while they are
paused, blocked, cut off, restarted and given false hints. For each kind, the module `referee` checks what must hold,
and the module `schedule` decides what happens. `faults` plants errors in the product, to check that the simulation
finds them.

The words of this package: a node is a simulated process; its line is its network connection to the store; a trouble is
something bad that the schedule does to a node or the store; calm is the time after all troubles have ended; the trace
is the printed list of what happened; a hint is the store's unasked message that something may have changed.

Exit code 0: no schedule broke a rule of its referee. Exit code 1: one did; the command that repeats it and its trace
are printed. Not promised: anything about seeds that were not tried, and that a seed gives the same schedule after the
product or the simulation has changed.
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
