"""Finds out which kind of file system a SQLite file is on, and how much room is left there.

SQLite's locks and shared memory work within one machine, not across several.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

from fencehold.model.errors import ConfigurationError

MOUNTS = Path("/proc/self/mountinfo")  # Linux; on other systems the kind stays unknown

#: Several machines may mount these: each would see only its own locks and memory, and two could lead at once.
SHARED = frozenset(
    [
        "nfs",
        "nfs4",
        "cifs",
        "smb3",
        "smbfs",
        "ncpfs",
        "afs",
        "ceph",
        "fuse.ceph",
        "glusterfs",
        "fuse.glusterfs",
        "lustre",
        "gfs2",
        "ocfs2",
        "gpfs",
        "beegfs",
        "orangefs",
        "fuse.sshfs",
        "fuse.s3fs",
        "fuse.rclone",
        "fuse.gcsfuse",
        "fuse.blobfuse2",
        "fuse.juicefs",
        "fuse.mountpoint-s3",
        "davfs",
        "fuse.davfs2",
    ]
)
#: Shared by a virtual machine or a container and its host: safe for processes on one side, not on both.
DOUBTFUL = frozenset(
    ["9p", "virtiofs", "vboxsf", "vmhgfs", "fuse.vmhgfs-fuse", "fuse.grpcfuse", "fuse.osxfs", "fakeowner", "prl_fs"]
)

#: With less room than this, the normal growth of the journal soon fills the disk.
ROOM_BYTES_MIN = 1_000_000

_LINE = re.compile(r"\S+ \S+ \S+ \S+ (?P<point>\S+) .*? - (?P<kind>\S+) (?P<source>\S*)")
_ESCAPED = re.compile(r"\\([0-7]{3})")


def check(path: str) -> None:
    """Raise ConfigurationError (shared_file_system) if several machines may use the file, or its place if it is new."""
    kind = kind_of(path)
    if kind in SHARED:
        raise ConfigurationError(
            f"{path} is on a file system of the kind {kind}, which several machines may share: SQLite's locks do not "
            "reach from one to the other, and two of them could lead at once.",
            hint="Use a disk of this machine, or a database server. If only this machine ever uses the file: "
            "sqlite:///...?file_system=any.",
            code="shared_file_system",
        )


def doubt(path: str) -> str | None:
    """Return a warning about the kind of file system that the file is on; None if nothing is known against it."""
    kind = kind_of(path)
    if kind not in DOUBTFUL | SHARED:
        return None
    return f"{path} is on a file system of the kind {kind}: all processes that use it must be on the same side of it"


def kind_of(path: str) -> str:
    """Return the kind of the file system that the path is on, such as `ext4`; empty if the system does not tell."""
    # Before the mounts are read: this triggers mounts on the path that are made on access (autofs, systemd).
    real = os.path.realpath(path)
    try:
        mounts = MOUNTS.read_text("utf-8", "replace")
    except OSError:
        return ""
    return kind_among(mounts, Path(real))


def kind_among(mounts: str, path: Path) -> str:
    """Return the kind of the innermost mount that holds the path; `mounts` is text as in /proc/self/mountinfo."""
    found: tuple[int, str] = (-1, "")
    for line in mounts.splitlines():
        if (match := _LINE.match(line)) is None:
            continue
        point = Path(_ESCAPED.sub(lambda m: chr(int(m[1], 8)), match["point"]))
        if point in (path, *path.parents) and len(point.parts) >= found[0]:
            found = (len(point.parts), _kind(match["kind"], match["source"]))
    return found[1]


def _kind(kind: str, source: str) -> str:
    """Return the kind of a mount. For a FUSE mount of no known kind it may be found in the name of its source."""
    named = f"fuse.{source}"
    return named if kind == "fuse" and named in SHARED | DOUBTFUL else kind


def room_bytes(path: str) -> int | None:
    """Return how many bytes this user can still write beside the file; None if the system does not report it."""
    if sys.platform == "win32":
        return None
    if not hasattr(os, "statvfs"):
        return None
    try:
        place = os.statvfs(os.path.dirname(path) or ".")
    except OSError:
        return None
    return place.f_frsize * (place.f_bfree if os.geteuid() == 0 else place.f_bavail)


def is_full(path: str) -> bool:
    room = room_bytes(path)
    return room is not None and room < ROOM_BYTES_MIN
