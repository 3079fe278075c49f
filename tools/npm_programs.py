"""Bring what only npm has into .venv/npm, without a lock file; say why where that does not work."""

import json
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / ".venv" / "npm"
LIMIT_S = 600

#: name the tests use -> packages and their exact versions
PACKAGES = {
    "cosmosdb-server": {"@vercel/cosmosdb-server": "1.0.1"},
    "pyright": {"pyright": "1.1.414"},  # the whole checker; PyPI's package of that name would fetch it when it runs
    "tsc": {"typescript": "5.9.3", "@types/documentdb-server": "0.0.40"},
}


def bring() -> dict[str, str]:
    """Install what is not there; the answer holds, for each still missing, the reason."""
    if not missing():
        return {}
    # All in one go: without a lock file npm removes what it is not asked for.
    complaint = install(["%s@%s" % one for wanted in PACKAGES.values() for one in wanted.items()])
    return dict.fromkeys(missing(), complaint or "not installed")


def missing() -> "list[str]":
    return [name for name, wanted in PACKAGES.items() if not all(present(*one) for one in wanted.items())]


def present(package: str, version: str) -> bool:
    try:
        found = json.loads((FOLDER / "node_modules" / package / "package.json").read_text())
    except (OSError, ValueError):
        return False
    return found.get("version") == version


def install(packages: "list[str]") -> "str | None":
    """None when it worked, else the last line of what npm said."""
    npm = shutil.which("npm")
    if npm is None:
        return "not installed, and there is no npm to install it with"
    print("programs: installing %s" % ", ".join(packages), flush=True)
    FOLDER.mkdir(parents=True, exist_ok=True)
    quiet = ["--no-save", "--no-package-lock", "--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error"]
    command = [npm, "install", "--prefix", str(FOLDER), *quiet, *packages]
    try:
        answer = subprocess.run(
            command,
            cwd=FOLDER,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=LIMIT_S,
        )
    except (OSError, subprocess.TimeoutExpired) as fault:
        return "npm: %s" % fault
    lines = answer.stdout.strip().splitlines()
    return None if answer.returncode == 0 else (lines[-1] if lines else "npm failed")
