"""The process between `fencehold run` and its command: nothing it started outlives the lease, or itself.

It ends every descendant, those that left the process group or the session included,

- before the deadline it was last told, whatever the wrapper is doing (stopped, starved, hung);
- at once when the pipe from the wrapper closes (the wrapper died, however it died);
- when it is told to; and, before it says that the command has ended, whatever the command left behind.

Standard library only, in one file, run as `python -I -S guardian.py`: it starts in tens of milliseconds and depends on
nothing that could be missing. Not promised: descendants of another user (setuid programs) cannot be signalled; and when
guardian and wrapper are killed at the same instant, only the command itself dies (PR_SET_PDEATHSIG), not its children.

Commands come in and statuses go out as JSON lines on two pipes; cli/guarded.py is the other end.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import select
import signal
import sys
import time
from dataclasses import dataclass
from typing import Any, NoReturn

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36

# What a terminal, a shell or a supervisor may send to everything in sight. SIGKILL and SIGSTOP cannot be ignored.
DEAF_TO = (
    signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGTSTP,
    signal.SIGTTIN, signal.SIGTTOU, signal.SIGWINCH, signal.SIGALRM,
)  # fmt: skip
SET_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)

# poll() counts on a clock that stands still during suspend; the deadline does not. So it looks this often at least.
LOOK_EVERY_S = 0.2
PURSUE_EVERY_S = 0.002
PURSUE_EVERY_S_MAX = 0.05  # what does not die of SIGKILL at once waits for a disk or for another user's permission
AWAIT_EVERY_S = 0.02
NO_DEADLINE_S = float("inf")

EXITED, DEADLINE, WRAPPER_GONE, TOLD = "exited", "deadline", "wrapper_gone", "told"

HAS_PROC = os.path.exists("/proc/self/stat")
_CLOCK_ID = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def now_s() -> float:
    return time.clock_gettime(_CLOCK_ID)


# Processes


@dataclass(frozen=True)
class Process:
    pid: int
    parent: int
    group: int


def descendants(root: int) -> list[Process]:
    """Every live process below `root`, found by parenthood; zombies are not alive."""
    below: dict[int, list[Process]] = {}
    zombies = set()
    for process, state in _all_processes():
        below.setdefault(process.parent, []).append(process)
        if state in "ZX":
            zombies.add(process.pid)
    found: list[Process] = []
    open_pids = [root]
    while open_pids:
        children = below.pop(open_pids.pop(), [])
        found += children
        open_pids += [child.pid for child in children]
    return [process for process in found if process.pid not in zombies]


def _all_processes() -> list[tuple[Process, str]]:
    found = []
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat", "rb") as file:
                stat = file.read()
        except OSError:
            continue  # gone between the listing and the reading
        fields = stat[stat.rindex(b")") + 2 :].split()
        found.append((Process(int(name), int(fields[1]), int(fields[2])), fields[0].decode()))
    return found


def group_members(group: int) -> list[Process]:
    """What can be known where there is no /proc: whether the group has a member."""
    try:
        os.killpg(group, 0)
    except OSError:
        return []
    return [Process(group, 0, group)]


def send(signum: int, processes: list[Process], group: int = 0) -> set[int]:
    """Signal them all, members of `group` in one step so that none can fork away; the pids that refused."""
    refused = set()
    targets = [process.pid for process in processes if process.group != group]
    if any(process.group == group for process in processes):
        targets.append(-group)
    for target in targets:
        try:
            os.kill(target, signum)
        except ProcessLookupError:
            continue
        except PermissionError:
            refused.add(target)
    return refused


def end_descendants(root: int, group: int, limit_s: float) -> list[int]:
    """SIGKILL everything below `root` until nothing is left; the pids that are, when the limit has passed."""
    end_s = now_s() + limit_s
    while alive := descendants(root) if HAS_PROC else group_members(group):
        send(signal.SIGKILL, alive, group)
        if now_s() > end_s:
            return [process.pid for process in alive]
        time.sleep(PURSUE_EVERY_S)
    return []


def prctl(option: int, value: int) -> None:
    """Where the kernel knows it; elsewhere the process group alone is guarded."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


# The guardian


class Guardian:
    """One command, from the order to start it until no process of it is left."""

    def __init__(self, commands_fd: int, status_fd: int, path: str, argv: list[str], ignored: set[int]) -> None:
        self._commands_fd = commands_fd
        self._status_fd = status_fd
        self._path = path
        self._argv = argv
        self._ignored = ignored
        self._heard = b""
        self._deadline_s = NO_DEADLINE_S
        self._grace_s = self._warn_s = self._kill_lead_s = 0.0
        self._child = 0
        self._exit_code: int | None = None
        self._because = ""
        self._kill_at_s = NO_DEADLINE_S
        self._pursue_s = PURSUE_EVERY_S
        self._refused: set[int] = set()
        self._childless = True
        self._over = False
        self._connected = True
        self._wake_fd = _wake_on_sigchld()

    def run(self) -> None:
        while not self._over:
            self._wait()
            self._reap()
            if self._child and not self._because:
                self._judge()
            if self._because:
                self._end()

    # --- hearing ---

    def _wait(self) -> None:
        poll = select.poll()
        poll.register(self._wake_fd, select.POLLIN)
        if self._connected:
            poll.register(self._commands_fd, select.POLLIN)
        for fd, _ in poll.poll(max(0, self._pause_s()) * 1000):
            if fd == self._wake_fd:
                os.read(fd, 4096)
            else:
                self._hear()

    def _pause_s(self) -> float:
        if not self._because:
            return min(LOOK_EVERY_S, self._deadline_s - self._warn_s - now_s())
        if self._is_time_to_kill():
            self._pursue_s = min(PURSUE_EVERY_S_MAX, self._pursue_s * 1.5)
            return self._pursue_s
        return min(AWAIT_EVERY_S, self._kill_at_s - now_s(), self._deadline_s - self._kill_lead_s - now_s())

    def _hear(self) -> None:
        data = os.read(self._commands_fd, 65536)
        if not data:
            self._connected = False
            self._doom(WRAPPER_GONE, within_s=0.0)
            return
        *lines, self._heard = (self._heard + data).split(b"\n")
        for line in lines:
            self._obey(json.loads(line))

    def _obey(self, command: dict[str, Any]) -> None:
        self._deadline_s = command.get("deadline_s", self._deadline_s)
        if "start" in command:
            self._grace_s = command["grace_s"]
            self._warn_s, self._kill_lead_s = command["warn_s"], command["kill_lead_s"]
            self._start(command["start"])
        if "signal" in command and self._exit_code is None and self._child:
            send(command["signal"], [Process(self._child, 0, self._child)], self._child)
        if "end_within_s" in command:
            self._doom(TOLD, within_s=command["end_within_s"])

    def _say(self, **status: Any) -> None:
        try:
            os.write(self._status_fd, json.dumps(status).encode() + b"\n")
        except OSError:
            return  # nobody is left to hear it; the work goes on

    # --- starting ---

    def _start(self, extra: dict[str, str]) -> None:
        environment = {**os.environ, **extra}
        failed_r, failed_w = os.pipe()  # closed by a successful exec
        me = os.getpid()
        pid = os.fork()
        if pid == 0:
            self._become(me, environment, failed_w)
        os.close(failed_w)
        failure = os.read(failed_r, 16)
        os.close(failed_r)
        self._child = pid
        if failure:
            self._say(failed=int(failure))
        else:
            self._say(started=pid)

    def _become(self, guardian: int, environment: dict[str, str], failed_w: int) -> NoReturn:
        try:
            os.setsid()
            for signum in (*DEAF_TO, *SET_BY_PYTHON, signal.SIGCHLD):
                if signum not in self._ignored:
                    signal.signal(signum, signal.SIG_DFL)
            prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != guardian:
                os._exit(1)  # it died before the line above: nobody would ever end us
            os.execve(self._path, self._argv, environment)
        except OSError as error:
            os.write(failed_w, str(error.errno or errno.EINVAL).encode())
        finally:
            os._exit(127)

    # --- ending ---

    def _reap(self) -> None:
        """Orphans of the command come to us, because we are the subreaper; all are reaped."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                self._childless = True
                return
            self._childless = False
            if pid == 0:
                return
            if pid == self._child:
                code = os.waitstatus_to_exitcode(status)
                self._exit_code = code if code >= 0 else 128 - code

    def _judge(self) -> None:
        if self._exit_code is not None:
            self._doom(EXITED, within_s=self._grace_s)
        elif now_s() >= self._deadline_s - self._warn_s:
            self._doom(DEADLINE, within_s=self._grace_s)

    def _doom(self, because: str, within_s: float) -> None:
        """SIGTERM to all if there is time, SIGKILL when there is none left. The first reason stands."""
        first = not self._because
        self._because = self._because or because
        self._kill_at_s = min(self._kill_at_s, now_s() + within_s)
        if first:
            self._say(ending=because)
            if within_s > 0:
                alive = self._alive()
                send(signal.SIGTERM, alive, self._child)
                send(signal.SIGCONT, alive, self._child)  # a stopped process cannot tidy up

    def _end(self) -> None:
        if self._is_time_to_kill():
            alive = self._alive()
            send(signal.SIGKILL, alive, self._child)
            self._refused |= send(signal.SIGKILL, alive)  # one by one: a group hides who in it refused
        self._reap()
        left = {process.pid for process in self._alive()}
        if left <= self._refused and (self._childless or left):
            self._over = True
            self._say(ended=self._exit_code, because=self._because, survivors=sorted(left))

    def _is_time_to_kill(self) -> bool:
        return now_s() >= min(self._kill_at_s, self._deadline_s - self._kill_lead_s)

    def _alive(self) -> list[Process]:
        if HAS_PROC:
            return descendants(os.getpid())
        return group_members(self._child) if self._child else []


def _wake_on_sigchld() -> int:
    read_fd, write_fd = os.pipe()
    os.set_blocking(read_fd, False)
    os.set_blocking(write_fd, False)
    signal.set_wakeup_fd(write_fd, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    return read_fd


def main(commands_fd: int, status_fd: int, path: str, argv: list[str]) -> None:
    for fd in (commands_fd, status_fd):
        os.set_inheritable(fd, False)
    ignored = {int(signum) for signum in DEAF_TO if signal.getsignal(signum) is signal.SIG_IGN}
    for signum in DEAF_TO:
        signal.signal(signum, signal.SIG_IGN)
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    Guardian(commands_fd, status_fd, path, argv, ignored).run()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4:])
