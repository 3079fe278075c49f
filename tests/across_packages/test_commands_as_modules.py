"""Every command can be started as a module, and says in a sentence what is not installed."""

import subprocess
import sys

import pytest

#: As if the package were not installed: Python raises ModuleNotFoundError for what stands there as None.
WITHOUT = "import sys; sys.modules[{missing!r}] = None; "


def python(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *words], capture_output=True, text=True, timeout=50, check=False)


@pytest.mark.parametrize("module", ["fencehold", "fencehold.cli", "pgleaderlock"])
def test_the_module_is_the_command(module: str) -> None:
    answer = python("-m", module, "--help")
    assert (answer.returncode, answer.stderr) == (0, "")
    assert "Usage: " in answer.stdout


@pytest.mark.parametrize("missing", ["psycopg", "click", "loguru"])
def test_pgleaderlock_says_what_is_not_installed_and_ends_with_78(missing: str) -> None:
    for start in (
        "from pgleaderlock.cli import main; main()",
        "import runpy; runpy.run_module('pgleaderlock', run_name='__main__')",
    ):
        answer = python("-c", WITHOUT.format(missing=missing) + start)
        said = f"pgleaderlock: {missing} is not installed; pip install 'fencehold[cli,postgres]'\n"
        assert (answer.returncode, answer.stdout, answer.stderr) == (78, "", said)


def test_a_program_without_the_driver_is_told_which_extra_brings_it() -> None:
    answer = python("-c", WITHOUT.format(missing="psycopg") + "from pgleaderlock import LeaderLock")
    assert answer.returncode == 1
    assert answer.stderr.endswith("LeaderLock needs the driver psycopg: pip install 'fencehold[postgres]'\n")
    assert python("-c", WITHOUT.format(missing="psycopg") + "from pgleaderlock import LockState").returncode == 0
