"""A folder on which something is mounted only when it is first touched, as systemd and autofs do with network disks."""

import ctypes
import fcntl
import os
import signal
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.servers.programs import Missing

LIVES_S = 60
PACKET_BYTES = 304  # struct autofs_v5_packet
MISSING_DIRECT = 5
AUTOFS_IOC_READY = 0x9360


def mount(folder: str, kind: str, options: str) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(b"none", folder.encode(), kind.encode(), 0, options.encode()) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def serve(folder: str) -> None:
    """Mount a small disk at the first touch. Touches of this process group, which nobody else is in, do not count."""
    os.setpgid(0, 0)
    signal.alarm(LIVES_S)
    asked, asks = os.pipe2(os.O_DIRECT)
    mount(folder, "autofs", f"fd={asks},pgrp={os.getpgrp()},minproto=5,maxproto=5,direct")
    place = os.open(folder, os.O_RDONLY)
    print("ready", flush=True)
    while True:
        _, kind, token = struct.unpack_from("iiI", os.read(asked, PACKET_BYTES))
        if kind == MISSING_DIRECT:
            mount(folder, "tmpfs", "size=2m")
            fcntl.ioctl(place, AUTOFS_IOC_READY, token)


@contextmanager
def automounted(folder: Path) -> Iterator[Path]:
    """The folder, not mounted yet; a `tmpfs` is there as soon as anybody looks into it."""
    folder.mkdir()
    command = [sys.executable, "-m", __name__, str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as daemon:
        assert daemon.stdout is not None
        try:
            if daemon.stdout.readline() != "ready\n":
                raise Missing("an automount point", daemon.communicate()[1].splitlines()[-1])
            yield folder
        finally:
            for _ in range(2):  # what was mounted, and the point itself
                subprocess.run(["umount", "--lazy", str(folder)], capture_output=True, check=False)
            daemon.kill()


if __name__ == "__main__":
    serve(sys.argv[1])
