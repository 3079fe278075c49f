"""The process between `fencehold run` and its command: no process it started outlives the lease, or the guardian.

It ends every descendant, including those that left the process group or the session,

- before the last deadline it received, whatever the wrapper is doing (stopped, starved, hung);
- at once when the pipe from the wrapper closes (the wrapper died, for whatever reason);
- when it is ordered to; and, before it reports that the command has ended, whatever the command left behind.

It uses only the standard library and imports nothing else of fencehold: it starts as a separate package (START), in
tens of milliseconds, and depends on nothing that could be missing. Not promised: when guardian and wrapper are killed
at the same instant, only the command itself dies (PR_SET_PDEATHSIG), not its children; and descendants of another user
(setuid programs) cannot be signalled, unless the command has its own control group.

Orders come in and reports go out as JSON lines on two pipes; cli/run/guarded.py is the other end.
"""

from __future__ import annotations

from .cgroup import Cgroup
from .descendants import CGROUP, CHILDREN, GROUP, SCAN, Descendants
from .kernel import become_subreaper, die_with_parent, now_s
from .loop import DEADLINE, EXITED, TOLD, WRAPPER_GONE

# Followed by the folder of this package, two pipes, "cgroup" if one may be made, the program and its arguments.
START = "import sys; sys.path.append(sys.argv.pop(1)); from guardian.loop import main; main(sys.argv[1:])"

__all__ = [
    "CGROUP", "CHILDREN", "DEADLINE", "EXITED", "GROUP", "SCAN", "START", "TOLD", "WRAPPER_GONE", "Cgroup",
    "Descendants", "become_subreaper", "die_with_parent", "now_s",
]  # fmt: skip
