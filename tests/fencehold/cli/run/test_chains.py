"""`fencehold run` with a command that forks, leaves the session and exits again and again: it ends with its lease."""

import contextlib
import json
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from fencehold.cli.run.guardian.cgroup import PREFIX, own_cgroup
from tests.fencehold.cli.cli_process import Command, prepare, until
from tests.fencehold.cli.run import bystanders, control_groups, forking_chain
from tests.servers.freezing import freeze

ALONE = (sys.executable, "-I", "-S")
CHAIN_LINES_MIN = 20
PAUSE_S = 0.002

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the process group alone is guarded")


@pytest.fixture
def url(sqlite_url: str) -> str:
    prepare(sqlite_url)
    return sqlite_url


@pytest.fixture(scope="module", autouse=True)
def many_processes() -> Iterator[None]:
    """A machine with hundreds of processes, as servers have: there a scan of /proc takes many milliseconds."""
    command = [*ALONE, bystanders.__file__, "400"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        yield


@pytest.fixture(params=["by cgroup", "by children"])
def way(request) -> Sequence[str]:
    if request.param == "by cgroup":
        control_groups.must_be_used(request.config)
    return [] if request.param == "by cgroup" else ["--no-cgroup"]


@contextlib.contextmanager
def chained(url: str, path: Path, *options: str, stay: str = "STAY") -> Iterator[Command]:
    chain = [*ALONE, forking_chain.__file__, str(path), str(PAUSE_S), stay]
    with Command(url, "-o", "json", "run", "chained", "--lease", "1s", *options, "--", *chain) as command:
        until(lambda: path.exists() and path.read_text().count("chain") > CHAIN_LINES_MIN, "the chain's start")
        yield command


def chain_lines_after_the_rivals_start(url: str, path: Path) -> int:
    """Another run of the same lease: it writes to the file that the chain writes to, and stays for a while."""
    with Command(url, "run", "chained", "--", "sh", "-c", "echo rival >> $0; sleep 0.3", str(path)) as rival:
        assert rival.end()[0] == 0
    lines = path.read_text().splitlines()
    return lines[lines.index("rival") :].count("chain")


def ended_by(command: Command) -> str:
    code, _, err = command.end()
    assert code == 79
    return str(json.loads(err)["error"]["ended_by"])


def test_a_chain_that_forks_calls_setsid_and_exits_writes_nothing_after_the_rival_has_started(url, tmp_path, way):
    with chained(url, tmp_path / "lines", *way) as command:
        freeze(command.child.pid, url)
        assert chain_lines_after_the_rivals_start(url, tmp_path / "lines") == 0
        command.child.send_signal(signal.SIGCONT)
        assert ended_by(command) == ("children" if way else "cgroup")


def test_a_chain_dies_with_the_wrapper(url, tmp_path, way):
    with chained(url, tmp_path / "lines", *way) as command:
        command.child.kill()
        assert chain_lines_after_the_rivals_start(url, tmp_path / "lines") == 0


def test_a_chain_whose_guardian_is_killed_is_ended_by_the_wrapper(url, tmp_path, way):
    with chained(url, tmp_path / "lines", *way) as command:
        command.guardian().kill()
        assert chain_lines_after_the_rivals_start(url, tmp_path / "lines") == 0
        assert ended_by(command) == ("children" if way else "cgroup")


def test_a_chain_left_behind_is_ended_before_the_lease_is_given_back(url, tmp_path, way):
    with chained(url, tmp_path / "lines", "--grace", "500ms", *way, stay="EXIT") as command:
        assert chain_lines_after_the_rivals_start(url, tmp_path / "lines") == 0
        assert command.end()[0] == 0


# What becomes of the control group


def group_of(guardian_pid: int) -> list[Path]:
    return list(Path(own_cgroup()).glob(f"{PREFIX}{guardian_pid}-*"))


@pytest.fixture
def grouped(request) -> None:
    control_groups.must_be_used(request.config)


@pytest.mark.usefixtures("grouped")
@pytest.mark.parametrize("victim", ["nobody", "guardian", "wrapper"])
def test_the_commands_control_group_is_gone_when_the_run_is_over(url, tmp_path, victim):
    ready = tmp_path / "ready"
    script = "touch $0; for i in $(seq 1200); do [ -e $0 ] || break; sleep 0.05; done"
    with Command(url, "run", "grouped", "--", "sh", "-c", script, str(ready)) as command:
        until(ready.exists, "the command's start")
        guardian = command.guardian()
        [group] = group_of(guardian.pid)
        (group / "made by the command").mkdir()
        if victim == "guardian":
            guardian.kill()
        elif victim == "wrapper":
            command.child.kill()
        else:
            ready.unlink()
        until(lambda: not group.exists(), "the group's end")


@pytest.mark.usefixtures("grouped")
def test_a_group_whose_guardian_and_wrapper_were_killed_together_is_removed_by_the_next_run(url):
    with subprocess.Popen(["true"]) as dead:
        dead.wait()
    left = Path(own_cgroup(), f"{PREFIX}{dead.pid}-left")
    left.mkdir()
    with Command(url, "run", "grouped", "--", "true") as command:
        assert command.end()[0] == 0
    assert not left.exists()
