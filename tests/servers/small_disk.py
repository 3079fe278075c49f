"""A disk that can be filled: a file system in memory, which root alone may mount."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.servers.programs import Missing

CHUNK = b"\0" * 4096


class SmallDisk:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._filler = folder / "filler"

    def fill(self) -> None:
        """To the last byte."""
        with self._filler.open("ab", buffering=0) as file:
            try:
                while True:
                    file.write(CHUNK)
            except OSError:
                return

    def make_room(self) -> None:
        self._filler.unlink()


@contextmanager
def small_disk(folder: Path, size: str = "2m") -> Iterator[SmallDisk]:
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(folder)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        raise Missing("a small disk", "only root may mount one")
    try:
        yield SmallDisk(folder)
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)
