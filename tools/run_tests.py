"""python tools/run_tests.py: all tests, in parts, four of them at a time.

Much of a run is waiting (for a lease to end, for a server to start), so four parts on two cores take little more than
one. Each part has servers of its own. Whenever one ends, it is shown and the next one begins. With arguments it is
plain pytest, which shows everything as it goes.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from tools import last_lines

PYTEST = (sys.executable, "-m", "pytest", "-q")
#: Hundreds of processes are started: where bytecode is not kept, each would compile all that it imports.
KEPT = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
AT_ONCE = 4
#: Those that take longest with CI=true come first, so that none is left alone at the end. All that needs the Patroni
#: cluster is in one part, which starts one cluster. A folder below a part may be a part of its own. What is in none of
#: them is the last part.
PARTS: tuple[tuple[str, ...], ...] = (
    ("tests/across_packages/cluster",),
    ("tests/fencehold/verify",),
    ("tests/submission_manager",),
    ("tests/fencehold/runtime/outbox",),
    ("tests/fencehold/cli",),
    ("tests/fencehold/backends/postgres",),
    ("tests/fencehold/testing/conformance",),
    ("tests/across_packages",),
    ("tests/pgleaderlock", "tests/mssqlleaderlock"),
    ("tests/docs", "tests/examples", "tests/types"),
    ("tests/fencehold/backends", "tests/fencehold/testing"),
    ("tests/fencehold/runtime", "tests/fencehold/sync"),
)


def main(arguments: Sequence[str]) -> int:
    if arguments:
        return subprocess.run([*PYTEST, *arguments], env=KEPT, check=False).returncode
    with tempfile.NamedTemporaryFile() as file:
        tally = Path(file.name)
        parts = [Part(paths, tally) for paths in places()]
        print(f"{len(parts)} parts, {AT_ONCE} at a time; each is shown when it has ended", flush=True)
        codes = run(parts)
        tally_of_all = last_lines.read(tally)
    for line in last_lines.lines(tally_of_all):
        print(line)
    print(last_lines.closing(tally_of_all, len(parts)), flush=True)
    return next((code for code in codes if code), 0)


def places() -> list[list[str]]:
    """What pytest is given for each part: its folders, and those below them to leave out."""
    parts = [there for part in PARTS if (there := [path for path in part if os.path.exists(path)])]
    known = [path for part in parts for path in part]
    return [[*part, *without(part, known)] for part in [*parts, ["tests"]]]


def without(part: list[str], known: list[str]) -> list[str]:
    return [f"--ignore={path}" for path in known if any(path.startswith(f"{above}/") for above in part)]


def run(parts: list[Part]) -> list[int]:
    with ThreadPoolExecutor(AT_ONCE) as pool:
        running = [pool.submit(part.run) for part in parts]
        try:
            for done in as_completed(running):
                print(done.result(), flush=True)
        except KeyboardInterrupt:
            pool.shutdown(wait=False, cancel_futures=True)
            for part in parts:
                part.end()
            return [130]
    return [part.code for part in parts]


class Part:
    """One run of pytest, which leaves the last word to the whole."""

    def __init__(self, words: list[str], tally: Path) -> None:
        self._words, self._tally = words, tally
        self._process: subprocess.Popen[bytes] | None = None
        self.code = 130

    def run(self) -> str:
        """Returns what it printed, when it has ended."""
        began_s = time.monotonic()
        command = [*PYTEST, *self._words, f"--tally={self._tally}"]
        with tempfile.TemporaryFile("w+b") as output:  # not a pipe, which a process left behind would keep open
            self._process = subprocess.Popen(command, env=KEPT, stdout=output, stderr=subprocess.STDOUT)
            self.code = self._process.wait()
            output.seek(0)
            said = output.read().decode(errors="replace")
        paths = " ".join(word for word in self._words if not word.startswith("--"))
        return f"\n{paths} ({time.monotonic() - began_s:.0f} s):\n{said}"

    def end(self) -> None:
        """Ctrl-C has reached all of them by itself where there is a terminal; elsewhere they are told."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
