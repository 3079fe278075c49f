"""Finds, signals and ends every descendant of this process, also those that left the process group or the session.

There are four ways; the best available one is used:

- `cgroup`: the command has its own control group, which the kernel ends in one step; one of the others is used too;
- `children`: the kernel's lists of children (/proc/PID/task/TID/children). Orphans become our children, because this
  process is their subreaper: the child of a process that forks and exits is at once in our own list. A list is read and
  its processes are killed within microseconds, and a killed process cannot fork: the few that forked before are in the
  next round's list;
- `scan`: all of /proc. A process that forks and exits every few milliseconds is often gone before it is read;
- `group`: only the process group, where there is no /proc.

With the first three, no descendant is left when this process has no child any more: every living descendant has an
ancestor among our children.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable

from .cgroup import Cgroup
from .kernel import now_s

CGROUP, CHILDREN, SCAN, GROUP = "cgroup", "children", "scan", "group"

HAS_PROC = os.path.exists("/proc/self/stat")
CALM_ROUNDS = 3
PAUSE_S = 0.002
PAUSE_S_MAX = 0.05  # a process that survives SIGKILL for a while waits for a disk, or is another user's

Visit = Callable[[int], None]


def finder() -> str:
    """Return the name of the best way to find descendants on this machine, apart from a control group."""
    if os.path.exists(f"/proc/self/task/{os.getpid()}/children"):
        return CHILDREN
    return SCAN if HAS_PROC else GROUP


class Descendants:
    """Finds, signals and kills all descendants of this process.

    `group` is the command's process group, `cgroup` its control group, if it has one. `pause_s` is how long to wait
    after a round of `kill`.
    """

    def __init__(self, *, group: int = 0, cgroup: Cgroup | None = None, by: str | None = None) -> None:
        self.group = group
        self.cgroup = cgroup
        self.pause_s = 0.0
        self._finder = by or finder()
        self._killed: set[int] = set()
        self._refused: set[int] = set()
        self._calm_rounds = 0

    @property
    def by(self) -> str:
        return CGROUP if self.cgroup else self._finder

    def find(self) -> set[int]:
        match self._finder:
            case "children":
                return _by_lists(os.getpid())
            case "scan":
                return _by_scan(os.getpid())
            case _:
                return _by_group(self.group)

    def signal(self, signum: int) -> None:
        """Send a signal once to each descendant: to the process group in one step, to the others one by one."""
        found = self.find()
        others = [] if self._finder == GROUP else [pid for pid in found if _group_of(pid) != self.group]
        for target in [-self.group, *others] if len(others) < len(found) else others:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(target, signum)

    def kill(self) -> None:
        """Send SIGKILL once to every descendant that is found now: one round of killing."""
        if self.cgroup:
            with contextlib.suppress(OSError):  # removed by someone else: its processes are found below
                self.cgroup.kill()
        if self._finder == CHILDREN:
            found = _by_lists(os.getpid(), self._kill)
        else:
            self.signal(signal.SIGKILL)  # the group in one step, so that none in it can escape by a fork
            found = self.find()
            for pid in found:  # and one by one: killing a group does not show which process refused
                self._kill(pid)
        self._note_round(found)

    def _note_round(self, found: set[int]) -> None:
        # A process that was not in the last round is newly forked, and may fork again: the next round is due at once.
        self.pause_s = 0.0 if found - self._killed else min(PAUSE_S_MAX, max(PAUSE_S, self.pause_s * 1.5))
        self._killed = found
        calm = bool(found and self._refused) and {pid for pid in found if _is_alive(pid)} <= self._refused
        self._calm_rounds = self._calm_rounds + 1 if calm else 0

    def _kill(self, pid: int) -> None:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            return
        except PermissionError:
            self._refused.add(pid)

    def reap(self, ended: Callable[[int, int], None] = lambda *_: None) -> bool:
        """Collect ended children, and call `ended` with pid and status of each. Returns True when no child is left."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return True
            if pid == 0:
                return False
            ended(pid, status)

    def survivors(self, *, childless: bool) -> list[int] | None:
        """Return None while descendants can still be killed, else the pids that refused signals.

        The result is empty if all descendants are dead.
        """
        if childless and (self._finder != GROUP or not self.find()):
            return []
        if self._calm_rounds >= CALM_ROUNDS:
            return self._living()
        return None

    def _living(self) -> list[int]:
        return sorted(pid for pid in self.find() if _is_alive(pid))

    def end(self, limit_s: float) -> list[int]:
        """Kill in rounds until no descendant is left. Returns the pids left at the limit, or that refuse signals."""
        end_s = now_s() + limit_s
        while (left := self.survivors(childless=self.reap())) is None:
            self.kill()
            if now_s() > end_s:
                return self._living()
            time.sleep(self.pause_s)
        return left


# By lists of children


def _by_lists(root: int, visit: Visit = lambda _: None) -> set[int]:
    """Return all descendants of `root`, from the kernel's lists of children.

    Calls `visit` for each descendant at once, before the next list is read.
    """
    found: set[int] = set()
    level = _children(root)
    while level:
        for pid in level:
            visit(pid)
        found.update(level)
        level = [child for pid in level for child in _children(pid) if child not in found]
    return found


def _children(pid: int) -> list[int]:
    """Return the children of all threads of a process. Empty if the process is gone: its children are ours then."""
    found: list[int] = []
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(OSError), open(f"/proc/{pid}/task/{thread}/children", "rb") as file:
                found += map(int, file.read().split())
    except OSError:
        return found
    return found


# By a scan of /proc


def _by_scan(root: int) -> set[int]:
    below: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit() and (fields := _stat(int(name))):
            below.setdefault(int(fields[1]), []).append(int(name))
    found: set[int] = set()
    level = below.pop(root, [])
    while level:
        found.update(level)
        level = [child for pid in level for child in below.pop(pid, [])]
    return {pid for pid in found if _is_alive(pid)}


def _stat(pid: int) -> list[bytes]:
    """Return a process's state, parent, group and so on, from /proc; empty if there is no such process or no /proc."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            stat = file.read()
    except OSError:
        return []
    return stat[stat.rindex(b")") + 2 :].split()


def _is_alive(pid: int) -> bool:
    """Return whether the process lives; a zombie does not. Always True if there is no /proc."""
    if not HAS_PROC:
        return True
    fields = _stat(pid)
    return bool(fields) and fields[0] not in (b"Z", b"X")


# By process group


def _by_group(group: int) -> set[int]:
    """Return a set with the group's id if the group has a member, else an empty set.

    Without /proc nothing more can be known.
    """
    if not group:
        return set()
    try:
        os.killpg(group, 0)
    except OSError:
        return set()
    return {group}


def _group_of(pid: int) -> int:
    try:
        return os.getpgid(pid)
    except OSError:
        return 0
