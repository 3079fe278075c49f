"""Nothing that `fencehold run` started outlives its lease, whatever happens to wrapper, guardian or store."""

import contextlib
import os
import signal
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.fencehold.cli.cli_process import (
    Command,
    family,
    fencehold_run,
    prepare,
    protected_by,
    row,
    stubborn,
    until,
    wait_dead,
)
from tests.servers.postgres import PostgresServer, fresh_database
from tests.servers.process import is_dead

AT_ONCE_S = 20.0  # on a busy machine, and long before a lease of 60 s ends


@pytest.fixture
def url(sqlite_url: str) -> str:
    prepare(sqlite_url)
    return sqlite_url


@contextlib.contextmanager
def running(url: str, name: str, ready: Path, lease: str) -> Iterator[tuple[Command, list[psutil.Process]]]:
    with Command(url, "run", name, "--lease", lease, *stubborn(ready)) as command:
        everybody = family(name, ready)
        try:
            yield command, everybody
        finally:
            # Also who was born after the family was counted: it would hold the command's pipes for five minutes.
            until(lambda: not killed(protected_by(name)), "the end of the family")


def killed(processes: list[psutil.Process]) -> list[psutil.Process]:
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    return processes


def expires_at_s(url: str, name: str) -> float:
    lease = row(url, name)
    assert lease is not None
    return lease.expires_at.timestamp()


@pytest.mark.parametrize("whole_group", [False, True])
def test_kill_9_of_the_wrapper_kills_everything_at_once(url, tmp_path, whole_group):
    with running(url, "killed", tmp_path / "ready", "60s") as (command, everybody):
        if whole_group:
            os.killpg(command.child.pid, signal.SIGKILL)
        else:
            command.child.kill()
        wait_dead(everybody, AT_ONCE_S)


def test_a_wrapper_stopped_past_its_lease_leaves_nothing_alive_at_expiry(url, tmp_path):
    with running(url, "stopped", tmp_path / "ready", "2s") as (command, everybody):
        command.child.send_signal(signal.SIGSTOP)
        _, died_at_s = wait_dead(everybody, 10)
        assert died_at_s < expires_at_s(url, "stopped")
        command.child.send_signal(signal.SIGCONT)
        code, _, err = command.end()
    assert code == 79
    assert "lease_lost" in err


def test_a_locked_database_is_79_and_nothing_is_alive_at_expiry(url, tmp_path):
    with running(url, "locked", tmp_path / "ready", "2s") as (command, everybody):
        with contextlib.closing(sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            _, died_at_s = wait_dead(everybody, 10)
            assert command.end()[0] == 79
        assert died_at_s < expires_at_s(url, "locked")


def test_a_stolen_lease_kills_at_the_next_renewal(url, tmp_path):
    with running(url, "stolen", tmp_path / "ready", "3s") as (command, everybody):
        with contextlib.closing(sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None)) as other:
            other.execute("UPDATE fencehold_leases SET holder_id = 'thief', lease_epoch = lease_epoch + 1")
        wait_dead(everybody, 10)
        code, _, err = command.end()
    assert code == 79
    assert "held by another" in err  # a renewal was refused; at the lease's end it would say that it ran out


@pytest.mark.parametrize("fault", ["kill9", "freeze"])
def test_a_postgresql_that_goes_away_is_79_and_nothing_is_alive_at_expiry(own_postgres, tmp_path, fault):
    server: PostgresServer = own_postgres
    with fresh_database(server) as url:
        prepare(url)
        with running(url, "gone", tmp_path / "ready", "2s") as (command, everybody):
            expires_s = expires_at_s(url, "gone")
            getattr(server, fault)()
            _, died_at_s = wait_dead(everybody, 10)
            assert command.end()[0] == 79
            server.start() if fault == "kill9" else server.thaw()
            expires_s = max(expires_s, expires_at_s(url, "gone"))
        assert died_at_s < expires_s


def test_a_guardian_killed_with_kill_9_takes_everything_along(url, tmp_path):
    with running(url, "unguarded", tmp_path / "ready", "60s") as (command, everybody):
        command.guardian().kill()
        wait_dead(everybody, AT_ONCE_S)
        code, _, err = command.end()
    assert code == 79
    assert "guardian" in err


def test_a_wrapper_that_slept_through_its_guardians_death_ends_the_orphans_when_it_wakes(url, tmp_path):
    with running(url, "orphaned", tmp_path / "ready", "60s") as (command, everybody):
        guardian = command.guardian()
        command.child.send_signal(signal.SIGSTOP)
        guardian.kill()
        until(lambda: is_dead(guardian), "the guardian's end")
        command.child.send_signal(signal.SIGCONT)
        wait_dead(everybody, AT_ONCE_S)
        assert command.end()[0] == 79


def test_a_frozen_guardian_is_replaced_by_the_wrapper_when_the_lease_is_lost(url, tmp_path):
    with running(url, "frozen", tmp_path / "ready", "2s") as (command, everybody):
        command.guardian().suspend()
        with contextlib.closing(sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            _, died_at_s = wait_dead(everybody, 10)
            assert command.end()[0] == 79
        assert died_at_s < expires_at_s(url, "frozen")


def test_a_stopped_guardian_is_woken_to_pass_a_signal_on(url):
    with Command(url, "run", "stopped", "--lease", "60s", "--", "sleep", "300") as command:
        until(lambda: protected_by("stopped"), "the command's start")
        command.guardian().suspend()
        command.child.send_signal(signal.SIGTERM)
        assert command.end()[0] == 128 + signal.SIGTERM


def test_a_guardian_that_is_stopped_when_its_wrapper_is_killed_still_kills_everything(url, tmp_path):
    with running(url, "stopped", tmp_path / "ready", "60s") as (command, everybody):
        command.guardian().suspend()
        command.child.kill()
        wait_dead(everybody, AT_ONCE_S)


def test_both_killed_at_once_the_command_itself_still_dies(url, tmp_path):
    with running(url, "alone", tmp_path / "ready", "60s") as (command, _):
        guardian = command.guardian()
        main = guardian.children()[0]
        command.child.send_signal(signal.SIGSTOP)
        guardian.kill()
        command.child.kill()
        wait_dead([main], AT_ONCE_S)


def test_a_step_down_gives_the_command_time_to_tidy_up(url, tmp_path):
    ready, tidied = tmp_path / "ready", tmp_path / "tidied"
    script = "trap 'sleep 0.3; touch $1; exit 0' TERM; touch $0; for i in $(seq 1200); do sleep 0.05; done"
    with Command(url, "run", "asked", "--lease", "3s", "--", "sh", "-c", script, str(ready), str(tidied)) as command:
        until(ready.exists, "the command's start")
        assert fencehold_run(url, "step-down", "asked")[0] == 0
        assert tidied.exists()
        code, _, err = command.end()
    assert code == 79
    assert "asked back" in err


def test_a_command_that_ignores_sigterm_is_dead_before_the_lease_is_handed_over(url, tmp_path):
    with running(url, "deaf", tmp_path / "ready", "3s") as (_, everybody):
        assert fencehold_run(url, "step-down", "deaf")[0] == 0
        assert all(map(is_dead, everybody))


def test_what_a_command_leaves_behind_is_dead_before_the_lease_is_free(url, tmp_path):
    pid = tmp_path / "pid"
    leave = "(trap '' TERM; echo $$; setsid sleep 300 & exec sleep 300) & sleep 0.2; pgrep -s $$ > $0; exit 3"
    with Command(url, "run", "left", "--grace", "500ms", "--", "sh", "-c", leave, str(pid)) as first:
        until(lambda: pid.exists() and pid.read_text(), "the first command's end")
        look = "for pid in $(cat $0); do kill -0 $pid 2>/dev/null && exit 1; done; exit 0"
        code, _, _ = fencehold_run(url, "run", "left", "--lease", "1s", "--", "sh", "-c", look, str(pid))
        assert code == 0
        assert first.end()[0] == 3
    assert protected_by("left") == []


def test_no_guardian_stays_behind(url):
    with Command(url, "run", "tidy", "--", "true") as command:
        assert command.end()[0] == 0
    with Command(url, "run", "tidy", "--", "sleep", "300") as command:
        until(lambda: protected_by("tidy"), "the command's start")
        guardian = command.guardian()
        command.child.kill()
        until(lambda: is_dead(guardian), "the guardian's end")
