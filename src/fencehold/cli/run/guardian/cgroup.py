"""A control group (cgroup v2) only for the command: the kernel ends everything in it in one step.

`cgroup.kill` also reaches processes that fork at that moment, left the session, or run as another user. It needs
Linux 5.14 and the right to make a folder below this process's control group.
"""

from __future__ import annotations

import contextlib
import os
import secrets

PREFIX = "fencehold-run-"
DELEGATED = ("trusted.delegate", "user.delegate")  # set by systemd on a control group that it delegated


class Cgroup:
    """A folder in the control group file system. Every failure raises OSError."""

    def __init__(self, path: str) -> None:
        self.path = path

    @classmethod
    def make(cls) -> Cgroup:
        """Make a new, empty control group below that of this process."""
        own = own_cgroup()
        # Moving a process needs write access to the nearest group that contains both groups.
        if not os.access(os.path.join(own, "cgroup.procs"), os.W_OK):
            raise PermissionError(f"{own}/cgroup.procs cannot be written")
        _remove_abandoned(own)
        made = cls(os.path.join(own, f"{PREFIX}{os.getpid()}-{secrets.token_hex(4)}"))
        os.mkdir(made.path)
        if not os.path.exists(os.path.join(made.path, "cgroup.kill")):
            made.remove()
            raise FileNotFoundError("this kernel has no cgroup.kill (Linux 5.14)")
        return made

    def enter(self) -> None:
        """Move the calling process into the group, and so every process that it will start."""
        self._write("cgroup.procs", "0")

    def kill(self) -> None:
        self._write("cgroup.kill", "1")

    def remove(self) -> None:
        """Remove the empty group, after the groups made inside it. Ignores failures."""
        with contextlib.suppress(OSError):
            for folder, _, _ in os.walk(self.path, topdown=False):
                os.rmdir(folder)

    def _write(self, name: str, text: str) -> None:
        with open(os.path.join(self.path, name), "w") as file:
            file.write(text)


def own_cgroup() -> str:
    """Return the folder of this process's control group (v2). Raises OSError if it has none."""
    with open("/proc/self/cgroup") as file:
        own = next((line.rstrip("\n")[3:] for line in file if line.startswith("0::/")), None)
    with open("/proc/self/mountinfo") as file:
        mounts = [line.split() for line in file if " - cgroup2 " in line]
    if own is None or not mounts:
        raise FileNotFoundError("there is no control group of version 2 here")
    top, place = mounts[0][3], mounts[0][4]
    return os.path.normpath(os.path.join(place, os.path.relpath(own, top)))


def is_ours_to_divide() -> bool:
    """Return whether this process may make control groups in its own group.

    Returns False if systemd manages the group and has not delegated it (Delegate=yes).
    """
    if not os.path.exists("/run/systemd/system"):
        return True
    for name in DELEGATED:
        with contextlib.suppress(OSError):
            return os.getxattr(own_cgroup(), name) == b"1"
    return False


def _remove_abandoned(parent: str) -> None:
    """Remove empty groups whose guardian was killed together with its wrapper: nobody else removes them."""
    for name in os.listdir(parent):
        pid = name.removeprefix(PREFIX).split("-")[0]
        if name.startswith(PREFIX) and not os.path.exists(f"/proc/{pid}"):
            Cgroup(os.path.join(parent, name)).remove()
