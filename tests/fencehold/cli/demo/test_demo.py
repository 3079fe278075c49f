"""`fencehold demo` tells the truth and leaves nothing behind."""

import json
import os
import pwd
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fencehold.cli.cli_process import Command, fencehold_run, until
from tests.servers.process import is_dead


def demo_folders(place: Path) -> list[Path]:
    return list(place.glob("fencehold-demo-*"))


def can_be_run_by(user: str) -> bool:
    try:
        command = [sys.executable, "-c", "import fencehold.cli.app"]
        return subprocess.run(command, user=user, cwd="/", capture_output=True, timeout=30, check=False).returncode == 0
    except PermissionError:
        return False


def leader_of(command: Command) -> str:
    """The worker that is first said to lead."""
    assert command.child.stdout is not None
    for line in command.child.stdout:
        if b"leads" in line:
            return line.decode().split()[2]
    raise AssertionError("nobody led")


def test_the_last_lines_are_counts_and_the_late_write_is_rejected_on_screen(tmp_path):
    code, out, err = fencehold_run(None, "demo", "--seconds", "6", env={"TMPDIR": str(tmp_path)})
    assert (code, err) == (0, "")
    *story, accepted, stale, two = out.splitlines()
    assert re.fullmatch(r"writes accepted +[1-9]\d*", accepted)
    assert re.fullmatch(r"writes accepted from stale leaders +0", stale)
    assert re.fullmatch(r"two leaders at once +0", two)
    chapters = ["leads with epoch 1", "kill -9", "epoch 2", "SIGSTOP", "epoch 3", "SIGCONT", "REJECTED", "step down"]
    positions = [next(n for n, line in enumerate(story) if chapter in line) for chapter in chapters]
    assert positions == sorted(positions)
    rejected = story[positions[6]]
    assert "[lease_lost]" in rejected
    assert "the write of epoch 2 changed 0 rows, because the lease's row says epoch 3" in rejected
    assert "deadline" not in rejected
    assert demo_folders(tmp_path) == []


def test_json_holds_the_story_and_the_kept_database(tmp_path):
    arguments = ["demo", "--seconds", "5", "--keep", "-o", "json"]
    code, out, err = fencehold_run(None, *arguments, env={"TMPDIR": str(tmp_path)})
    assert (code, err) == (0, "")
    told = json.loads(out)
    assert (told["stale_writes_accepted"], told["two_leaders_at_once"]) == (0, 0)
    assert told["writes_accepted"] > 0
    assert len(told["story"]) >= 8
    assert Path(told["database"]).is_file()


@pytest.mark.parametrize(("signum", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -9)])
def test_interrupted_it_leaves_no_process_and_no_file(tmp_path, signum, code):
    with Command(None, "demo", env={"TMPDIR": str(tmp_path)}) as command:
        name = leader_of(command)
        workers = command.tree()
        assert len(workers) == 3
        next(worker for worker in workers if name in worker.cmdline()).suspend()  # a frozen one must not be forgotten
        command.child.send_signal(signum)
        command.child.wait(20)
        until(lambda: all(map(is_dead, workers)), "the end of the workers")
    assert command.child.returncode == code
    if signum != signal.SIGKILL:
        assert demo_folders(tmp_path) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="an ordinary user already runs it as one")
def test_it_runs_as_an_ordinary_user(tmp_path):
    nobody = pwd.getpwnam("nobody")
    if not can_be_run_by("nobody"):
        pytest.skip("this interpreter is out of an ordinary user's reach")
    place = Path("/tmp") / f"fencehold-as-nobody-{os.getpid()}"
    place.mkdir()
    os.chown(place, nobody.pw_uid, nobody.pw_gid)
    try:
        answer = subprocess.run(
            [sys.executable, "-m", "fencehold.cli", "demo", "--seconds", "5"],
            user="nobody", cwd="/", env={"TMPDIR": str(place), "PATH": os.environ["PATH"]}, capture_output=True,
            text=True, timeout=40, check=False,
        )  # fmt: skip
        assert (answer.returncode, answer.stderr) == (0, "")
    finally:
        place.rmdir()


@pytest.mark.parametrize("seconds", ["1", "-3", "nan", "1e9", "soon"])
def test_a_wrong_length_is_78(seconds):
    code, out, err = fencehold_run(None, "demo", "--seconds", seconds)
    assert (code, out) == (78, "")
    assert "seconds" in err
