"""python tools/run_tests.py: all tests, in four parts of about the same length at once.

Much of a run is waiting (for a lease to end, for a server to start), so four parts on two cores take little more than
the longest. Each part has servers of its own. The first is shown as it goes, the others when they are done. With
arguments it is plain pytest, which shows everything as it goes.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import IO

import last_lines

PYTEST = (sys.executable, "-m", "pytest", "-q")
#: Hundreds of processes are started: where bytecode is not kept, each would compile all that it imports.
KEPT = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
#: Each about a quarter of the time of all with CI=true. The rest is the first part: half of it is tests/outbox, a third
#: tests/postgres. All that needs the Patroni cluster is in tests/cluster, so that one part starts one cluster.
OTHERS: tuple[tuple[str, ...], ...] = (
    ("tests/cluster", "tests/verify", "tests/faults"),
    ("tests/system", "tests/pgleaderlock"),
    (
        "tests/conformance", "tests/submission_manager", "tests/cosmos", "tests/cosmos_procedures", "tests/items",
        "tests/upgrading", "tests/servers",
    ),
)  # fmt: skip


def main(arguments: Sequence[str]) -> int:
    if arguments:
        return subprocess.run([*PYTEST, *arguments], env=KEPT, check=False).returncode
    others = [there for part in OTHERS if (there := [path for path in part if os.path.exists(path)])]
    rest = ["tests", *(f"--ignore={path}" for part in others for path in part)]
    kept = [tempfile.TemporaryFile("w+b") for _ in others]  # noqa: SIM115 - closed with the process
    with tempfile.NamedTemporaryFile() as file:
        tally = Path(file.name)
        parts = [start(rest, None, tally)]
        parts += [start(part, output, tally) for part, output in zip(others, kept, strict=True)]
        try:
            codes = [part.wait() for part in parts]
        except KeyboardInterrupt:
            codes = [end(part) for part in parts]
        tally_of_all = last_lines.read(tally)
    for part, output in zip(others, kept, strict=True):
        show(part, output)
    for line in last_lines.lines(tally_of_all):
        print(line)
    print(last_lines.closing(tally_of_all, len(parts)), flush=True)
    return max(codes)


def start(paths: list[str], output: IO[bytes] | None, tally: Path) -> subprocess.Popen[bytes]:
    errors = subprocess.STDOUT if output else None
    return subprocess.Popen([*PYTEST, *paths, f"--tally={tally}"], env=KEPT, stdout=output, stderr=errors)


def show(paths: list[str], output: IO[bytes]) -> None:
    output.seek(0)
    print(f"\n{' '.join(paths)}:", flush=True)
    sys.stdout.buffer.write(output.read())
    sys.stdout.flush()


def end(part: subprocess.Popen[bytes]) -> int:
    """Ctrl-C has reached all of them by itself where there is a terminal; elsewhere they are told."""
    if part.poll() is None:
        os.kill(part.pid, signal.SIGINT)
    part.wait()
    return 130


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
