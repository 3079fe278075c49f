"""The wrapper's side of the guardian, the process that ends the command before its lease can no longer be trusted."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fencehold.cli.run import guardian

GUARDIAN_GONE = "guardian_gone"
GUARDIAN_FROZEN = "guardian_frozen"

KILL_LIMIT_S = 5.0
ANSWER_LIMIT_S_MIN = 0.1
WARN_PART = 0.1  # of the lease: without a renewal, SIGTERM is sent this long before the deadline
KILL_LEAD_PART = 0.02
KILL_LEAD_S_MAX = 0.1


@dataclass(frozen=True)
class Outcome:
    """How the command ended. All its processes are dead, except the survivors.

    `because` is one of the guardian's reasons, or one of the two constants above.
    """

    because: str
    exit_code: int | None = None
    failed_errno: int | None = None
    survivors: tuple[int, ...] = ()
    ended_by: str = ""


class Guarded:
    """The guardian process, which starts and ends the command, with the pipes to it.

    The guardian is started before the lease is sought, so that the command starts at once when the lease is granted.
    """

    def __init__(self, path: str, argv: Sequence[str], *, may_have_cgroup: bool = True) -> None:
        self._loop = asyncio.get_running_loop()
        commands_r, self._commands_fd = os.pipe()
        self._status_fd, status_w = os.pipe()
        os.set_blocking(self._commands_fd, False)
        os.set_blocking(self._status_fd, False)
        # If the guardian dies, its orphans become our children: then we must end them.
        guardian.become_subreaper()
        folder = os.path.dirname(guardian.__path__[0])
        settings = [folder, str(commands_r), str(status_w), guardian.CGROUP if may_have_cgroup else "-"]
        command = [sys.executable, "-I", "-S", "-c", guardian.START, *settings, path, *argv]
        passed = (commands_r, status_w, *_descriptors_given_to_us())
        # A separate session: `kill -9` on the wrapper's process group must not kill the guardian too.
        self._process = subprocess.Popen(command, pass_fds=passed, start_new_session=True)
        os.close(commands_r)
        os.close(status_w)
        self._deadline_s = guardian.now_s()
        self._heard = b""
        self._child = 0
        self._cgroup: guardian.Cgroup | None = None
        self._ended_by = ""
        self._failed_errno: int | None = None
        self._outcome: asyncio.Future[Outcome] = self._loop.create_future()
        self._loop.add_reader(self._status_fd, self._hear)

    # --- orders to the guardian ---

    def start(self, environment: Mapping[str, str], remaining_s: float, lease_s: float, grace_s: float) -> None:
        self._deadline_s = guardian.now_s() + remaining_s
        self._order(
            start=dict(environment),
            deadline_s=self._deadline_s,
            grace_s=grace_s,
            warn_s=min(grace_s, lease_s * WARN_PART),
            kill_lead_s=min(KILL_LEAD_S_MAX, lease_s * KILL_LEAD_PART),
        )

    def extend(self, asked_s: float, remaining_s: float) -> None:
        """Send a new deadline to the guardian: `asked_s` plus `remaining_s`.

        `asked_s` was read from the clock before `remaining_s`: their sum is never later than the real deadline.
        """
        if remaining_s > 0:
            self._deadline_s = asked_s + remaining_s
            self._order(deadline_s=self._deadline_s)

    def forward(self, signum: int) -> None:
        self._order(signal=signum)

    def _order(self, **command: Any) -> None:
        # A full pipe means a frozen guardian, a broken one a dead guardian: `outcome` and `end` handle both.
        with contextlib.suppress(OSError):
            self._process.send_signal(signal.SIGCONT)  # wakes a guardian that was stopped
            os.write(self._commands_fd, json.dumps(command).encode() + b"\n")

    # --- reports of the guardian ---

    async def outcome(self) -> Outcome:
        """Wait until no process of the command is left, and return how it ended."""
        return await asyncio.shield(self._outcome)

    async def end(self, within_s: float) -> Outcome:
        """End the command: SIGTERM, then SIGKILL after `within_s` or at the deadline. Returns how it ended.

        If the guardian does not answer by the deadline, this process kills the command itself.
        """
        self._order(end_within_s=within_s)
        left_s = max(ANSWER_LIMIT_S_MIN, self._deadline_s - guardian.now_s())
        try:
            async with asyncio.timeout(left_s):
                return await self.outcome()
        except TimeoutError:
            return self._end_by_hand(GUARDIAN_FROZEN)

    def _hear(self) -> None:
        data = os.read(self._status_fd, 65536)
        if not data:
            self._loop.remove_reader(self._status_fd)
            if not self._outcome.done():
                self._end_by_hand(GUARDIAN_GONE)
            return
        *lines, self._heard = (self._heard + data).split(b"\n")
        for line in lines:
            self._note(json.loads(line))

    def _note(self, status: dict[str, Any]) -> None:
        if "started" in status:
            self._child, self._ended_by = status["started"], status["by"]
            self._cgroup = guardian.Cgroup(status["cgroup"]) if status["cgroup"] else None
        self._failed_errno = status.get("failed", self._failed_errno)
        if "ended" in status and not self._outcome.done():
            survivors = tuple(status["survivors"])
            self._outcome.set_result(
                Outcome(status["because"], status["ended"], self._failed_errno, survivors, self._ended_by)
            )

    def _end_by_hand(self, because: str) -> Outcome:
        descendants = guardian.Descendants(group=self._child, cgroup=self._cgroup)
        survivors = descendants.end(KILL_LIMIT_S)
        if self._cgroup:
            self._cgroup.remove()
        outcome = Outcome(because, survivors=tuple(survivors), ended_by=descendants.by)
        if not self._outcome.done():
            self._outcome.set_result(outcome)
        return outcome

    def close(self) -> None:
        """Close the pipe to the guardian, which is the last order: the guardian kills whatever still runs."""
        self._loop.remove_reader(self._status_fd)
        os.close(self._commands_fd)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(KILL_LIMIT_S)
        os.close(self._status_fd)


def _descriptors_given_to_us() -> list[int]:
    """Return the descriptors above 2 that our parent left open for the command (`<(...)`, make's jobserver).

    Our own descriptors are left out. Where the system does not list descriptors (no /dev/fd), the result is empty, and
    the command gets only the first three.
    """
    found = []
    with contextlib.suppress(OSError):
        for name in os.listdir("/dev/fd"):
            with contextlib.suppress(OSError):  # the descriptor by which the list was read
                if int(name) > 2 and os.get_inheritable(int(name)):
                    found.append(int(name))
    return found
