"""Ends every process that works in the given folders as soon as the test run is gone, and removes the folders.

Patroni lets PostgreSQL run on when it is killed, so the kernel's signal to a direct child is not enough here. A
PostgreSQL process works in its data folder, which finds all of them and nobody else's.

usage: python -m tests.servers.sweeper FOLDER...        it waits until its standard input ends or its parent is gone
"""

import contextlib
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import psutil

from tests.servers.programs import ROOT

LIMIT_S = 20.0


def working_in(folder: Path) -> list[psutil.Process]:
    """Every living process whose current folder is this one or lies below it."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if Path(process.cwd()).is_relative_to(folder) and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def end_all(folder: Path) -> None:
    """Kill what works there until nothing does; a process may start another one while we look."""
    give_up_at = time.monotonic() + LIMIT_S
    while (there := working_in(folder)) and time.monotonic() < give_up_at:
        for process in there:
            with contextlib.suppress(psutil.Error):
                process.send_signal(signal.SIGKILL)
        time.sleep(0.01)


def watch_over(folders: Sequence[Path]) -> "subprocess.Popen[bytes]":
    """Start the sweeper; close its standard input to let it do its work and end."""
    command = [sys.executable, "-m", __name__, *map(str, folders)]
    return subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, start_new_session=True)


def main(folders: Sequence[str]) -> None:
    parent = os.getppid()
    for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(signum, signal.SIG_IGN)
    while os.getppid() == parent and not select.select([sys.stdin], [], [], 1.0)[0]:
        pass
    for folder in map(Path, folders):
        end_all(folder)
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main(sys.argv[1:])
