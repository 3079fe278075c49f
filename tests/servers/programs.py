"""Where a program is, or why it is not here."""

import json
import os
import shutil
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
REPORT = ROOT / ".venv" / "programs.json"
NPM = ROOT / ".venv" / "npm" / "node_modules"
SEARCH = os.pathsep.join(
    [os.environ.get("PATH", os.defpath), "/usr/local/sbin", "/usr/sbin", "/sbin", str(NPM / ".bin")]
)


class Missing(Exception):
    """A program or server this machine does not have."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"{name} ({reason})")
        self.name = name
        self.reason = reason


def find(name: str) -> Path | None:
    """Debian keeps servers in sbin, which an ordinary user's PATH leaves out; npm's are in .venv/npm."""
    found = shutil.which(name, path=SEARCH)
    return Path(found) if found else None


def require(name: str) -> Path:
    found = find(name)
    if found is None:
        raise Missing(name, reason(name))
    return found


def reason(name: str) -> str:
    """What the install step wrote down, if it ran."""
    try:
        told = json.loads(REPORT.read_text())
    except (OSError, ValueError):
        told = {}
    return str(told.get(name, "not installed"))
