"""`fencehold run`: whose exit code, which signals, and when the command is not run at all."""

import contextlib
import os
import signal
import sqlite3
import subprocess
from pathlib import Path

import psutil
import pytest

from tests.fencehold.cli.cli_process import (
    FORWARDED,
    Command,
    error_of,
    fencehold_run,
    give_back,
    hold,
    prepare,
    protected_by,
    row,
    until,
)


@pytest.fixture
def url(sqlite_url: str) -> str:
    prepare(sqlite_url)
    return sqlite_url


@pytest.mark.parametrize(("script", "code"), [("exit 0", 0), ("exit 7", 7), ("kill -9 $$", 137), ("exit 79", 79)])
def test_the_exit_code_is_the_commands_own(url, script, code):
    assert fencehold_run(url, "run", "job", "--", "sh", "-c", script)[0] == code


def test_the_command_learns_its_epoch_and_the_lease_is_given_back(url):
    script = "echo $FENCEHOLD_EPOCH $FENCEHOLD_LEASE $FENCEHOLD_HOLDER"
    for epoch in (1, 2):
        code, out, err = fencehold_run(url, "run", "the job", "--holder-id", "me", "--", "sh", "-c", script)
        assert (code, out, err) == (0, f"{epoch} the job me\n", "")
    lease = row(url, "the job")
    assert lease is not None
    assert not lease.is_live


def test_a_command_may_run_longer_than_its_lease(url):
    assert fencehold_run(url, "run", "job", "--lease", "500ms", "--", "sleep", "2")[0] == 0


def test_stdin_and_stdout_are_the_commands(url):
    with Command(url, "run", "job", "--", "cat", stdin=subprocess.PIPE) as command:
        assert command.child.communicate(b"to \xff and fro")[0] == b"to \xff and fro"


def test_other_open_descriptors_are_the_commands_too(url):
    read_fd, write_fd = os.pipe()
    os.write(write_fd, b"to and fro")
    os.close(write_fd)
    with Command(url, "run", "job", "--", "cat", f"/dev/fd/{read_fd}", pass_fds=(read_fd,)) as command:
        assert command.child.communicate()[0] == b"to and fro"
    os.close(read_fd)


def test_on_postgresql_too(postgres_url):
    prepare(postgres_url)
    assert fencehold_run(postgres_url, "run", "job", "--", "sh", "-c", "exit 7")[0] == 7


@pytest.mark.parametrize("patience", [["--no-wait"], ["--wait", "300ms"]])
def test_a_lease_held_by_another_is_75_and_the_command_never_starts(url, tmp_path, patience):
    hold(url, "job")
    code, error = error_of(url, "run", "job", *patience, "--", "touch", str(tmp_path / "ran"))
    assert code == 75
    assert error["code"] == "not_acquired"
    assert "somebody else" in error["message"]
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("patience", [["--no-wait"], ["--wait", "500ms"]])
def test_a_database_that_does_not_answer_is_69_and_not_75(url, patience):
    with contextlib.closing(sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        code, error = error_of(url, "run", "job", "--lease", "1s", *patience, "--", "true")
    assert (code, error["code"]) == (69, "unavailable")
    assert "locked" in error["message"]


def test_by_default_it_waits_until_the_lease_is_free(url):
    held = hold(url, "job")
    with Command(url, "run", "job", "--lease", "2s", "--", "sh", "-c", "echo $FENCEHOLD_EPOCH") as command:
        assert "waiting for lease 'job', held by somebody else" in command.stderr_line()
        give_back(url, held)
        assert command.end()[:2] == (0, "2\n")


@pytest.mark.parametrize(("program", "code"), [("no-such-program", 127), ("./plain", 126), (".", 126), ("", 127)])
def test_a_command_that_cannot_run_is_found_before_the_lease_is_taken(url, tmp_path, monkeypatch, program, code):
    monkeypatch.chdir(tmp_path)
    Path("plain").write_text("not a program")
    assert fencehold_run(url, "run", "job", "--", program)[0] == code
    assert row(url, "job") is None


def test_a_program_that_the_kernel_refuses_is_126_and_the_lease_is_given_back(url, tmp_path):
    broken = tmp_path / "broken"
    broken.write_bytes(b"\x7fELF nonsense")
    broken.chmod(0o755)
    code, error = error_of(url, "run", "job", "--", str(broken))
    assert (code, error["code"]) == (126, "command_not_executable")
    lease = row(url, "job")
    assert lease is not None
    assert not lease.is_live


def test_a_script_whose_interpreter_is_missing_is_127_and_says_so(url, tmp_path):
    script = tmp_path / "script"
    script.write_text("#!/no/such/interpreter\n")
    script.chmod(0o755)
    code, error = error_of(url, "run", "job", "--", str(script))
    assert (code, error["code"]) == (127, "command_not_found")
    assert "interpreter" in error["message"]


@pytest.mark.parametrize("name", FORWARDED)
def test_a_signal_is_passed_on_and_the_command_decides(url, tmp_path, name):
    ready = tmp_path / "ready"
    script = f"trap 'exit 42' {name}; touch $0; for i in $(seq 1200); do sleep 0.05; done"
    with Command(url, "run", "job", "--", "sh", "-c", script, str(ready)) as command:
        until(ready.exists, "the command's start")
        command.child.send_signal(getattr(signal, f"SIG{name}"))
        assert command.end()[0] == 42
    assert protected_by("job") == []


def test_a_signal_that_the_command_does_not_catch_ends_both(url, tmp_path):
    ready = tmp_path / "ready"
    with Command(url, "run", "job", "--", "sh", "-c", "touch $0; exec sleep 300", str(ready)) as command:
        until(ready.exists, "the command's start")
        command.child.send_signal(signal.SIGINT)
        assert command.end()[0] == 130


def test_a_command_that_is_stopped_is_ended_by_sigterm(url):
    with Command(url, "run", "job", "--", "sh", "-c", "kill -STOP $$") as command:
        until(lambda: any(p.status() == psutil.STATUS_STOPPED for p in protected_by("job")), "the command's stop")
        command.child.send_signal(signal.SIGTERM)
        assert command.end()[0] == 128 + signal.SIGTERM


@pytest.mark.parametrize("name", [name for name in FORWARDED if name != "WINCH"])
def test_a_signal_while_waiting_ends_the_waiting_at_once(url, tmp_path, name):
    held = hold(url, "job")
    with Command(url, "run", "job", "--", "touch", str(tmp_path / "ran")) as command:
        assert "waiting" in command.stderr_line()
        command.child.send_signal(signal.SIGWINCH)  # a resized window ends nothing
        command.child.send_signal(getattr(signal, f"SIG{name}"))
        until(lambda: command.child.poll() is not None, "the exit")  # long before the lease that it waits for ends
        assert command.child.returncode == 128 + getattr(signal, f"SIG{name}")
    after = row(url, "job")
    assert after is not None
    assert (after.epoch, after.holder_id) == (held.epoch, "somebody else")
    assert not (tmp_path / "ran").exists()


def test_what_the_caller_ignores_stays_ignored_in_the_wrapper_and_in_the_command(url, tmp_path):
    ready, go = tmp_path / "ready", tmp_path / "go"
    script = "kill -HUP $$; touch $0; for i in $(seq 3000); do [ -e $1 ] && break; sleep 0.02; done; exit 5"
    arguments = ["run", "job", "--", "sh", "-c", script, str(ready), str(go)]
    with Command(url, *arguments, ignoring=signal.SIGHUP) as command:
        until(ready.exists, "the command's start")
        command.child.send_signal(signal.SIGHUP)
        go.touch()
        assert command.end()[0] == 5


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["job", "true"], "bad_usage"),
        (["job", "--"], "bad_usage"),
        (["job", "--wait", "1s", "--no-wait", "--", "true"], "bad_usage"),
        (["job", "--lease", "soon", "--", "true"], "bad_duration"),
        (["job", "--lease", "1ms", "--", "true"], "bad_settings"),
        (["job", "--wait", "0", "--", "true"], "bad_duration"),
        (["", "--", "true"], "bad_name"),
        (["x" * 65, "--", "true"], "bad_name"),
        (["job", "--holder-id", "", "--", "true"], "bad_name"),
    ],
)
def test_bad_input_is_78_and_says_what_is_wrong(url, arguments, code):
    exit_code, error = error_of(url, "run", *arguments)
    assert (exit_code, error["code"]) == (78, code)
    assert error["hint"]
