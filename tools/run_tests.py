"""python tools/run_tests.py: all tests, in two halves at once.

Much of a run is waiting (for a lease to end, for a server to start), so two halves on two cores take little more than
the longer one. Each half has servers of its own. The first is shown as it goes, the second when it is done. With
arguments it is plain pytest, which shows everything as it goes.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from typing import IO

PYTEST = (sys.executable, "-m", "pytest", "-q")
OTHER = ("tests/system", "tests/outbox/test_crash_run.py")  # about half the time of all


def main(arguments: Sequence[str]) -> int:
    if arguments:
        return subprocess.run([*PYTEST, *arguments], check=False).returncode
    with tempfile.TemporaryFile("w+b") as kept:
        halves = [start(["tests", *(f"--ignore={path}" for path in OTHER)], None), start(list(OTHER), kept)]
        try:
            codes = [half.wait() for half in halves]
        except KeyboardInterrupt:
            codes = [end(half) for half in halves]
        kept.seek(0)
        print("\nthe other half:", flush=True)
        sys.stdout.buffer.write(kept.read())
        sys.stdout.flush()
    return max(codes)


def start(paths: list[str], output: IO[bytes] | None) -> subprocess.Popen[bytes]:
    return subprocess.Popen([*PYTEST, *paths], stdout=output, stderr=subprocess.STDOUT if output else None)


def end(half: subprocess.Popen[bytes]) -> int:
    """Ctrl-C has reached both of them by itself where there is a terminal; elsewhere they are told."""
    if half.poll() is None:
        os.kill(half.pid, signal.SIGINT)
    half.wait()
    return 130


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
