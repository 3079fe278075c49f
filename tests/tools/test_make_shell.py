"""`make shell` as a person has it: interactive, with files of their own that put other folders first on the PATH."""

import contextlib
import os
import pty
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
#: Of each shell the file of the user that it reads; that of dash is named by $ENV.
FILES = {"bash": ".bashrc", "zsh": ".zshrc", "dash": ".shrc"}
TYPED = "command -v fencehold\nfalse\nexit\n"


def typed_into(shell: str, home: Path, **variables: str) -> tuple[int, str]:
    """make's exit code, and what stood on the screen at the end."""
    ours, theirs = pty.openpty()
    kept = {key: value for key, value in os.environ.items() if key not in ("MAKEFLAGS", "MAKELEVEL", "ZDOTDIR", "ENV")}
    environment = {**kept, "HOME": str(home), "SHELL": str(shutil.which(shell)), "TERM": "dumb", **variables}
    with subprocess.Popen(
        ["make", "--no-print-directory", "shell"], cwd=ROOT, env=environment, stdin=theirs, stdout=theirs,
        stderr=theirs, start_new_session=True,
    ) as make:  # fmt: skip
        os.close(theirs)
        os.write(ours, TYPED.encode())
        seen = b""
        with contextlib.suppress(OSError):  # how a pty says that nobody has its other end any more
            while part := os.read(ours, 65536):
                seen += part
        os.close(ours)
    return make.returncode, seen.decode(errors="replace")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """With another `fencehold`, which the user's files put first."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "fencehold").write_text("#!/bin/sh\necho another\n")
    (tmp_path / "bin" / "fencehold").chmod(0o755)
    for name in FILES.values():
        (tmp_path / name).write_text(f'PATH="{tmp_path}/bin:$PATH"\necho "the user\'s own file was read"\n')
    return tmp_path


@pytest.mark.parametrize(
    "shell",
    [
        pytest.param("bash", marks=pytest.mark.needs("bash")),
        pytest.param("zsh", marks=pytest.mark.needs("zsh")),
        pytest.param("dash", marks=pytest.mark.needs("dash")),
    ],
)
def test_files_of_the_user_do_not_hide_the_commands_and_a_failed_one_is_no_error_of_make(shell: str, home: Path):
    code, seen = typed_into(shell, home, ENV=str(home / FILES["dash"]))
    assert "the user's own file was read" in seen
    assert (f"{ROOT}/.venv/bin/fencehold" in seen, f"{home}/bin/fencehold" in seen) == (True, False)
    assert (code, "Error" in seen, "***" in seen) == (0, False, False)


@pytest.mark.needs("zsh")
def test_a_user_of_zsh_who_keeps_the_files_elsewhere_has_them_read_too(home: Path):
    (home / ".zshrc").unlink()
    (home / "elsewhere").mkdir()
    (home / ".zshenv").write_text("ZDOTDIR=$HOME/elsewhere\n")
    (home / "elsewhere" / ".zshrc").write_text('echo "read in $ZDOTDIR"\n')
    assert f"read in {home}/elsewhere" in typed_into("zsh", home)[1]
