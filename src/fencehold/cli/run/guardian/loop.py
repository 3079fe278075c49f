"""The guardian's loop: runs one command, from the order to start it until no process of it is left."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import select
import signal
from dataclasses import dataclass
from typing import Any, NoReturn

from .cgroup import Cgroup, is_ours_to_divide
from .descendants import Descendants
from .kernel import become_subreaper, die_with_parent, now_s, wake_with_parent

# The signals that a terminal, a shell or a supervisor may send to all processes; the guardian ignores them. SIGKILL and
# SIGSTOP cannot be ignored.
DEAF_TO = (
    signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGTSTP,
    signal.SIGTTIN, signal.SIGTTOU, signal.SIGWINCH, signal.SIGALRM,
)  # fmt: skip
SET_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)

# poll() uses a clock that stops during suspend; the deadline's clock does not. So the loop checks at least this often.
LOOK_EVERY_S = 0.2
AWAIT_EVERY_S = 0.02
NO_DEADLINE_S = float("inf")

ENTERED = b"c"  # the command is in its control group

EXITED, DEADLINE, WRAPPER_GONE, TOLD = "exited", "deadline", "wrapper_gone", "told"


@dataclass(frozen=True)
class Program:
    """The program to start: its file, arguments and ignored signals, and whether it may get a control group."""

    path: str
    argv: list[str]
    ignored: set[int]
    may_have_cgroup: bool


class Guardian:
    """Runs one command, from the order to start it until no process of it is left."""

    def __init__(self, commands_fd: int, status_fd: int, program: Program) -> None:
        self._commands_fd = commands_fd
        self._status_fd = status_fd
        self._program = program
        self._descendants = Descendants()
        self._cgroup: Cgroup | None = None
        self._heard = b""
        self._deadline_s = NO_DEADLINE_S
        self._grace_s = self._warn_s = self._kill_lead_s = 0.0
        self._child = 0
        self._exit_code: int | None = None
        self._because = ""
        self._kill_at_s = NO_DEADLINE_S
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

    # --- orders from the wrapper ---

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
            return self._descendants.pause_s
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
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._child, command["signal"])
                if command["signal"] in (signal.SIGTERM, signal.SIGHUP):
                    os.killpg(self._child, signal.SIGCONT)  # a stopped command would never end
        if "end_within_s" in command:
            self._doom(TOLD, within_s=command["end_within_s"])

    def _say(self, **status: Any) -> None:
        try:
            os.write(self._status_fd, json.dumps(status).encode() + b"\n")
        except OSError:
            return  # the wrapper is gone; the work goes on

    # --- starting ---

    def _start(self, extra: dict[str, str]) -> None:
        environment = {**os.environ, **extra}
        report_r, report_w = os.pipe()  # closed by a successful exec
        self._cgroup = self._make_cgroup()
        me = os.getpid()
        pid = os.fork()
        if pid == 0:
            self._become(me, environment, report_w)
        os.close(report_w)
        self._child = pid
        with os.fdopen(report_r, "rb") as file:
            report = file.read()
        self._descendants = Descendants(group=pid, cgroup=self._cgroup if report.startswith(ENTERED) else None)
        if failure := report.removeprefix(ENTERED):
            self._say(failed=int(failure))
        else:
            cgroup = self._descendants.cgroup
            self._say(started=pid, by=self._descendants.by, cgroup=cgroup.path if cgroup else None)

    def _make_cgroup(self) -> Cgroup | None:
        """Return a new control group; None if it cannot be made or is unwanted.

        Without a control group the processes are found in other ways.
        """
        if self._program.may_have_cgroup:
            with contextlib.suppress(OSError):
                return Cgroup.make() if is_ours_to_divide() else None
        return None

    def _become(self, guardian: int, environment: dict[str, str], report_w: int) -> NoReturn:
        try:
            if self._cgroup:
                with contextlib.suppress(OSError):
                    self._cgroup.enter()
                    os.write(report_w, ENTERED)
            os.setsid()
            for signum in (*DEAF_TO, *SET_BY_PYTHON, signal.SIGCHLD):
                if signum not in self._program.ignored:
                    signal.signal(signum, signal.SIG_DFL)
            die_with_parent()
            if os.getppid() != guardian:
                os._exit(1)  # the guardian died before the line above: nobody would ever end us
            os.execve(self._program.path, self._program.argv, environment)
        except OSError as error:
            os.write(report_w, str(error.errno or errno.EINVAL).encode())
        finally:
            os._exit(127)

    def tidy_up(self) -> None:
        if self._cgroup:
            self._cgroup.remove()

    # --- ending ---

    def _reap(self) -> None:
        """Reap all ended children; they include the command's orphans, because we are the subreaper."""
        self._childless = self._descendants.reap(self._note_exit)

    def _note_exit(self, pid: int, status: int) -> None:
        if pid == self._child:
            code = os.waitstatus_to_exitcode(status)
            self._exit_code = code if code >= 0 else 128 - code

    def _judge(self) -> None:
        if self._exit_code is not None:
            self._doom(EXITED, within_s=self._grace_s)
        elif now_s() >= self._deadline_s - self._warn_s:
            self._doom(DEADLINE, within_s=self._grace_s)

    def _doom(self, because: str, within_s: float) -> None:
        """Begin to end the command: SIGTERM to all its processes if there is time, SIGKILL when `within_s` is over.

        If it is called again, the first reason stays, and the earlier time counts.
        """
        first = not self._because
        self._because = self._because or because
        self._kill_at_s = min(self._kill_at_s, now_s() + within_s)
        if first:
            self._say(ending=because)
            if within_s > 0:
                self._descendants.signal(signal.SIGTERM)
                self._descendants.signal(signal.SIGCONT)  # a stopped process cannot clean up

    def _end(self) -> None:
        if self._is_time_to_kill():
            self._descendants.kill()
        self._reap()
        survivors = self._descendants.survivors(childless=self._childless)
        if survivors is not None:
            self._over = True
            self._say(ended=self._exit_code, because=self._because, survivors=survivors)

    def _is_time_to_kill(self) -> bool:
        return now_s() >= min(self._kill_at_s, self._deadline_s - self._kill_lead_s)


def _wake_on_sigchld() -> int:
    read_fd, write_fd = os.pipe()
    os.set_blocking(read_fd, False)
    os.set_blocking(write_fd, False)
    signal.set_wakeup_fd(write_fd, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    return read_fd


def main(arguments: list[str]) -> None:
    commands_fd, status_fd, may_have_cgroup, path, *argv = arguments
    for fd in (commands_fd, status_fd):
        os.set_inheritable(int(fd), False)
    ignored = {int(signum) for signum in DEAF_TO if signal.getsignal(signum) is signal.SIG_IGN}
    for signum in DEAF_TO:
        signal.signal(signum, signal.SIG_IGN)
    become_subreaper()
    wake_with_parent()
    guardian = Guardian(int(commands_fd), int(status_fd), Program(path, argv, ignored, may_have_cgroup == "cgroup"))
    guardian.run()
    guardian.tidy_up()
