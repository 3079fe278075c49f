"""Bring the servers that only npm has into .venv/npm, without a lock file; say why where that does not work."""

import json
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / ".venv" / "npm"
LIMIT_S = 600

#: name the tests use -> package and exact version
PACKAGES = {"cosmosdb-server": ("@vercel/cosmosdb-server", "1.0.1")}


def bring() -> dict[str, str]:
    """Install what is not there; the answer holds, for each still missing, the reason."""
    reasons = {}
    for name, (package, version) in PACKAGES.items():
        if not present(package, version):
            complaint = install(package, version)
            if not present(package, version):
                reasons[name] = complaint or "not installed"
    return reasons


def present(package: str, version: str) -> bool:
    try:
        found = json.loads((FOLDER / "node_modules" / package / "package.json").read_text())
    except (OSError, ValueError):
        return False
    return found.get("version") == version


def install(package: str, version: str) -> "str | None":
    """None when it worked, else the last line of what npm said."""
    npm = shutil.which("npm")
    if npm is None:
        return "not installed, and there is no npm to install it with"
    print("programs: installing %s %s" % (package, version), flush=True)
    FOLDER.mkdir(parents=True, exist_ok=True)
    quiet = ["--no-save", "--no-package-lock", "--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error"]
    command = [npm, "install", "--prefix", str(FOLDER), *quiet, "%s@%s" % (package, version)]
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
