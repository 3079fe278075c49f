"""The `pgleaderlock` command and the usage example as real processes: exit codes, and what they never print."""

from __future__ import annotations

import asyncio
import gc
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from fencehold.testing.proxy import Fault, ThreadedFaultProxy
from pgleaderlock import FixedInterval, LeaderLock, command
from pgleaderlock.errors import PoolerError
from tests.across_packages.processes import ROOT
from tests.pgleaderlock.candidates import asked, holders
from tests.pgleaderlock.fake_server import FakeServer
from tests.servers.pgbouncer import PgBouncer
from tests.servers.postgres import PostgresServer

COMMAND = [sys.executable, "-c", "from pgleaderlock.cli import main; main()"]
KEYS = ("--key1", "1", "--key2", "100")
SECRET = "geheim-4711"
SPEC = """
pgleaderlock run --dsn postgresql://... --key1 1234 --key2 5678 \\
    --health-interval 5.0 --retry-base 1.0 --retry-max 30.0
"""


def environment(dsn: str | None) -> dict[str, str]:
    inherited = {key: value for key, value in os.environ.items() if key != "PG_DSN"}
    return {**inherited, **({"PG_DSN": dsn} if dsn is not None else {})}


def run(*words: str, dsn: str | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *words], env=environment(dsn), capture_output=True, text=True, timeout=50, check=False, cwd=ROOT
    )


class Running:
    """A process whose stderr is waited on for words, never for a time."""

    def __init__(self, command: list[str], dsn: str | None) -> None:
        self.text = ""
        self._grown = threading.Condition()
        self.child = subprocess.Popen(
            command, env=environment(dsn), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, cwd=ROOT
        )
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.child.stderr is not None
        for line in self.child.stderr:
            with self._grown:
                self.text += line
                self._grown.notify_all()

    def shows(self, words: str) -> None:
        self.shows_one_of(words)

    def shows_one_of(self, *words: str) -> int:
        """Which of them came first."""
        with self._grown:
            seen = self._grown.wait_for(lambda: [w for w in words if w in self.text], 30)
            assert seen, f"never {words!r} in {self.text}"
            return min((self.text.index(w), i) for i, w in enumerate(words) if w in self.text)[1]


@contextmanager
def running(*words: str, dsn: str | None = None, command: list[str] | None = None) -> Iterator[Running]:
    process = Running([*(command or COMMAND), *words], dsn)
    try:
        yield process
    finally:
        process.child.kill()
        process.child.wait()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_run_leads_until_it_is_told_to_stop(postgres_url: str, number: signal.Signals) -> None:
    with running("run", *KEYS, dsn=postgres_url) as process:
        process.shows("on_acquired")
        assert len(holders(postgres_url)) == 1
        process.child.send_signal(number)
        assert process.child.wait(30) == 0
        process.shows("to=stopped")
        assert holders(postgres_url) == []
    for words in ("state_change from=follower to=acquiring key1=1 key2=100", "lock_acquired attempt=1", "on_released"):
        assert words in process.text
    assert re.search(r"^\d\d:\d\d:\d\d\.\d{3} \| INFO    \| state_change", process.text, re.MULTILINE)


def test_the_session_of_the_specification_runs_as_written(postgres_url: str) -> None:
    words = shlex.split(SPEC.replace("postgresql://...", postgres_url).replace("\\\n", " "))
    with running(*words[1:]) as process:
        process.shows("on_acquired")
        process.child.send_signal(signal.SIGTERM)
        assert process.child.wait(30) == 0


def test_run_takes_every_option(postgres_url: str) -> None:
    options = (
        "--health-interval", "0.2", "--retry-base", "0.1", "--retry-max", "0.5", "--reconnect-grace", "10",
        "--no-auto-reacquire",
    )  # fmt: skip
    with running("run", *KEYS, *options, dsn=postgres_url) as process:
        process.shows("on_acquired")
        asked(postgres_url, "SELECT pg_terminate_backend(%s)", holders(postgres_url)[0])
        process.shows("leadership_recovered")
        assert "on_lost" not in process.text
        process.child.send_signal(signal.SIGINT)
        assert process.child.wait(30) == 0


def test_run_without_reacquiring_ends_with_1_after_a_loss(postgres_url: str) -> None:
    with running("run", *KEYS, "--no-auto-reacquire", dsn=postgres_url) as process:
        process.shows("on_acquired")
        asked(postgres_url, "SELECT pg_terminate_backend(%s)", holders(postgres_url)[0])
        assert process.child.wait(30) == 1
        process.shows("on_lost")


def test_run_with_a_configuration_that_no_retry_can_mend_ends_with_78() -> None:
    unreadable = run("run", *KEYS, dsn=f"postgresql://clerk:{SECRET}/x@localhost:5432/postgres")
    assert unreadable.returncode == 78, unreadable.stderr
    assert "on_error The PostgreSQL URL cannot be read" in unreadable.stderr


@pytest.mark.needs("pgbouncer")
def test_run_behind_a_pooler_that_shares_sessions_ends_with_78(
    own_postgres: PostgresServer, own_pgbouncer: Callable[..., PgBouncer]
) -> None:
    ended = run("run", *KEYS, dsn=own_pgbouncer(own_postgres, "transaction").dsn())
    assert ended.returncode == 78, ended.stderr
    assert "pool_mode = session" in ended.stderr


def test_run_that_may_not_try_again_ends_with_69_when_the_database_cannot_be_reached() -> None:
    ended = run("run", *KEYS, "--no-auto-reacquire", dsn="postgresql://localhost:1/postgres")
    assert ended.returncode == 69, ended.stderr


async def test_run_ends_with_78_when_that_is_why_a_lost_lock_was_not_regained() -> None:
    server = FakeServer()
    lock = LeaderLock("", 1, 100, connect_fn=server.connect, health_interval_s=0.05)

    async def refused() -> None:
        raise PoolerError("a pooler")

    @lock.on_acquired
    def break_it() -> None:
        server.broken = {"probe"}
        assert lock._mechanism is not None
        lock._mechanism._open = refused  # type: ignore[assignment]

    async with asyncio.timeout(30):
        assert await command._run(lock) == 78


def test_sigusr1_hands_leadership_to_another_run_as_the_page_says(postgres_url: str) -> None:
    hour = ("--retry-base", "3600", "--retry-max", "3600")
    with running("run", *KEYS, *hour, dsn=postgres_url) as first, running("run", *KEYS, *hour, dsn=postgres_url) as two:
        leader, follower = (first, two) if first.shows_one_of("on_acquired", "on_acquire_failed") == 0 else (two, first)
        leader.shows("on_acquired")
        follower.shows("on_acquire_failed")
        leader.child.send_signal(signal.SIGUSR1)
        follower.shows("on_acquired")  # its next retry would be in an hour
        leader.shows("on_released")
        assert leader.child.poll() is None
        assert len(holders(postgres_url)) == 1


def test_run_that_may_not_try_again_ends_with_0_after_a_step_down(postgres_url: str) -> None:
    with running("run", *KEYS, "--no-auto-reacquire", dsn=postgres_url) as process:
        process.shows("on_acquired")
        process.child.send_signal(signal.SIGUSR1)
        assert process.child.wait(30) == 0


def test_a_step_down_on_a_connection_that_is_reset_ends_run_with_69(postgres_url: str) -> None:
    dsn = conninfo_to_dict(postgres_url)
    with ThreadedFaultProxy(str(dsn["host"]), int(str(dsn["port"]))) as proxy:
        proxy.when_seen(b"pg_advisory_unlock", Fault.RESET_ONE)
        through = make_conninfo(postgres_url, host=proxy.host, port=proxy.port)
        with running("run", *KEYS, dsn=through) as process:
            process.shows("on_acquired")
            process.child.send_signal(signal.SIGUSR1)
            assert process.child.wait(30) == 69
            process.shows("on_error")


async def test_run_keeps_the_last_error_only() -> None:
    server = FakeServer()
    lock = LeaderLock("", 1, 100, connect_fn=server.connect, retry_strategy=FixedInterval(0.001))
    errors: list[weakref.ref[Exception]] = []
    enough = asyncio.Event()

    @lock.on_error
    def note(error: Exception) -> None:
        errors.append(weakref.ref(error))
        if len(errors) == 20:
            enough.set()

    server.broken = {"lock"}
    running = asyncio.ensure_future(command._run(lock))
    async with asyncio.timeout(30):
        await enough.wait()
        gc.collect()
        assert sum(error() is not None for error in errors) < 5
        running.cancel()
        await asyncio.wait([running])


def test_acquire_and_status_tell_by_their_exit_codes(postgres_url: str) -> None:
    assert run("acquire", *KEYS, dsn=postgres_url).returncode == 0
    free = run("status", *KEYS, "--dsn", postgres_url)
    assert (free.returncode, free.stdout) == (1, "key1=1 key2=100: free\n")
    with running("run", *KEYS, dsn=postgres_url) as process:
        process.shows("on_acquired")
        refused = run("acquire", *KEYS, dsn=postgres_url)
        assert (refused.returncode, refused.stdout) == (1, "not acquired: another session holds it\n")
        held = run("status", *KEYS, dsn=postgres_url)
        assert held.returncode == 0
        assert f"held by pid={holders(postgres_url)[0]} application=pgleaderlock client=127.0.0.1" in held.stdout


@pytest.mark.parametrize("words", [("run", "--no-auto-reacquire"), ("acquire",), ("status",)])
def test_no_output_shows_a_password(own_postgres: PostgresServer, words: tuple[str, ...]) -> None:
    demand_passwords(own_postgres)
    name = {"unreachable": "localhost:1", "wrong password": f"127.0.0.1:{own_postgres.port}"}
    for why, where in name.items():
        ended = run(*words, *KEYS, dsn=f"postgresql://clerk:{SECRET}@{where}/postgres")
        assert ended.returncode == (69 if why == "unreachable" else 78), (why, ended)
        assert SECRET not in ended.stdout + ended.stderr
        assert "Traceback" not in ended.stderr
        assert "Check" in ended.stderr  # what to do
    broken = run(*words, *KEYS, dsn=f"postgresql://clerk:{SECRET}/x@localhost:5432/postgres")
    assert broken.returncode == 78
    assert SECRET not in broken.stdout + broken.stderr


def demand_passwords(server: PostgresServer) -> None:
    dsn = server.dsn()
    hba = Path(asked(dsn, "SHOW hba_file")[0])
    hba.write_text("host all clerk all scram-sha-256\n" + hba.read_text())
    asked(dsn, "CREATE ROLE clerk LOGIN PASSWORD 'another'")
    asked(dsn, "SELECT pg_reload_conf()")


@pytest.mark.parametrize("words", [("run", "--key1", "2147483648", "--key2", "1"), ("acquire", "--key1", "1")])
def test_what_cannot_be_asked_is_refused_before_anything_happens(words: tuple[str, ...]) -> None:
    refused = run(*words, dsn="postgresql://localhost:1/x")
    assert refused.returncode == 2
    assert "--key" in refused.stderr


@pytest.mark.parametrize("verb", ["run", "acquire", "status"])
def test_without_an_address_the_variable_for_it_is_named(verb: str) -> None:
    refused = run(verb, *KEYS)
    assert (refused.returncode, "PG_DSN" in refused.stderr) == (2, True)
    empty = run(verb, *KEYS, "--dsn", "", dsn="postgresql://localhost:1/x")
    assert (empty.returncode, "it is empty" in empty.stderr) == (2, True)


@pytest.mark.parametrize("verb", ["run", "acquire", "status"])
@pytest.mark.parametrize("dsn", ["sqlite:///app.db", f"mssql://me:{SECRET}@host/db"])
def test_an_address_of_another_database_is_told_that_it_is_postgresql_only(verb: str, dsn: str) -> None:
    refused = run(verb, *KEYS, dsn=dsn)
    assert refused.returncode == 78
    assert f"works on PostgreSQL only, and this address begins with {dsn.partition(':')[0]}://" in refused.stderr
    assert SECRET not in refused.stderr


@pytest.mark.parametrize("password", ["a://b", "x:y://z"])
def test_an_address_in_the_form_of_libpq_is_not_taken_for_another_databases(password: str) -> None:
    refused = run("acquire", *KEYS, dsn=f"host=127.0.0.1 port=1 password={password}")
    assert (refused.returncode, "PostgreSQL only" in refused.stderr) == (69, False)


def test_the_usage_example_runs_as_written(postgres_url: str) -> None:
    example = [sys.executable, str(ROOT / "examples" / "pgleaderlock_usage.py")]
    with running(dsn=postgres_url, command=example) as process:
        assert process.child.wait(30) == 0
        process.shows("leader work is done here, while is_leader is True")
        assert "example | I am the leader now" in process.text
    assert holders(postgres_url) == []
