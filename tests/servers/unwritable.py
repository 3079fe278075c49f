"""What cannot be written, for root as for anybody else: a folder, or one file in it."""

import os
import pwd
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import fencehold
from tests.servers.process import readable_by_server
from tests.servers.programs import Missing


@contextmanager
def unwritable(folder: Path) -> Iterator[None]:
    """Root may write anywhere but on a file system that is mounted read-only; others are kept out by permissions."""
    if os.geteuid() != 0:
        yield from _by_permission(folder)
        return
    if not _mount("--bind", str(folder), str(folder)) or not _mount("-o", "remount,bind,ro", str(folder)):
        raise Missing("a read-only mount", "this root may not mount")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def _mount(*arguments: str) -> bool:
    return subprocess.run(["mount", *arguments], capture_output=True, check=False).returncode == 0


def _by_permission(folder: Path) -> Iterator[None]:
    before = [(path, path.stat().st_mode) for path in (folder, *folder.iterdir())]
    for path, mode in before:
        path.chmod(mode & ~0o222)
    try:
        yield
    finally:
        for path, mode in before:
            path.chmod(mode)


@contextmanager
def only_readable(file: Path) -> Iterator[None]:
    """This process may read the file and not write it, and make files beside it. Root is somebody else meanwhile."""
    with _allowing(file, file_mode=0o444, folder_mode=0o777):
        yield


@contextmanager
def no_files_beside(file: Path) -> Iterator[None]:
    """This process may write the file, and make no files beside it."""
    with _allowing(file, file_mode=0o666, folder_mode=0o555):
        yield


@contextmanager
def _allowing(file: Path, file_mode: int, folder_mode: int) -> Iterator[None]:
    before = [(path, path.stat().st_mode) for path in (file.parent, file)]
    if os.geteuid() == 0 and not readable_by_server(Path(fencehold.__file__)):
        pytest.skip("the code is out of an ordinary user's reach")
    file.chmod(file_mode)
    file.parent.chmod(folder_mode)
    is_root = os.geteuid() == 0
    if is_root:
        os.seteuid(pwd.getpwnam("nobody").pw_uid)
    try:
        yield
    finally:
        if is_root:
            os.seteuid(0)
        for path, mode in before:
            path.chmod(mode)
