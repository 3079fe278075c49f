"""An environment of its own for each peer, below .bench/, made once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from bench.children import ROOT

HOME = ROOT / ".bench"
INSTALL_LIMIT_S = 600.0


class CannotInstall(Exception):
    """The package could not be installed here; says why in one line."""


def python_of(name: str, requirements: tuple[str, ...]) -> Path:
    """The interpreter of the environment that holds exactly these; CannotInstall when they cannot be had."""
    home = HOME / name / ".venv"
    python, stamp = home / "bin" / "python", home / "requirements.txt"
    wanted = "\n".join(requirements)
    if not (stamp.exists() and stamp.read_text() == wanted):
        _run([sys.executable, "-m", "venv", "--clear", str(home)])
        _run([str(python), "-m", "pip", "install", "--quiet", *requirements])
        stamp.write_text(wanted)
    return python


def packages_of(python: Path) -> Path:
    """Where that environment keeps its packages, for a PYTHONPATH."""
    return next(python.parents[1].glob("lib/python*/site-packages"))


def _run(command: list[str]) -> None:
    try:
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=INSTALL_LIMIT_S)
    except (OSError, subprocess.SubprocessError) as error:
        said = str(getattr(error, "stderr", "") or error).strip().splitlines()
        raise CannotInstall(said[-1] if said else repr(error)) from None
