"""Runs pytest with the arguments of the command line, and prints the matrix of rules after it."""

from __future__ import annotations

import subprocess
import sys

PYTEST = (sys.executable, "-m", "pytest", "-p", "fencehold.testing.conformance.matrix")

if __name__ == "__main__":  # in a process of its own: pytest must be loaded before the modules that it rewrites
    sys.exit(subprocess.run([*PYTEST, *sys.argv[1:]], check=False).returncode)
