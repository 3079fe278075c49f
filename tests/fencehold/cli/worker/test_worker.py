"""`fencehold worker` and `fencehold reaper` as real processes: stopped in order, killed, recovered, cut off."""

import contextlib
import json
import os
import signal
import socket
import sqlite3
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from fencehold.model.outbox.rules import Status
from tests.fencehold.cli.cli_process import Command, lease_for, prepare, until
from tests.fencehold.cli.outbox_scene import added, row_of

APP = '''
import asyncio, os, pathlib, signal, time

HERE = pathlib.Path(__file__).parent

async def note(event):
    (HERE / f"noted-{event.payload}").touch()

async def wait(event):
    """In hand until it may end."""
    (HERE / f"began-{event.attempt}").touch()
    while not (HERE / "go").exists():
        await asyncio.sleep(0.005)

def stubborn(event):
    (HERE / f"began-{event.attempt}").touch()
    while True:
        time.sleep(1)

async def block(event):
    """Not only itself: the event loop, too."""
    (HERE / f"began-{event.attempt}").touch()
    time.sleep(1000)

def fork(event):
    if (child := os.fork()) == 0:
        (HERE / "new").write_text(str(os.getpid()))
        (HERE / "new").rename(HERE / "forked")  # by the child: what runs in it before is not its own yet
        signal.pause()
        os._exit(0)
    (HERE / "ended").write_text(str(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])))

def fail(event):
    raise ConnectionError("postgresql://me:hunter2@db/x is down")

handlers = {"fail": fail, "note": note, "wait": wait, "stubborn": stubborn, "block": block, "fork": fork}
'''


@pytest.fixture
def url(any_url: str) -> str:
    """A database of its own: a killed worker leaves the reaper's lease behind."""
    prepare(any_url)
    return any_url


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that the worker is started in."""
    (tmp_path / "app.py").write_text(APP)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "app", raising=False)
    return tmp_path


@contextlib.contextmanager
def working(url: str, *options: str) -> Iterator[Command]:
    with Command(url, "worker", "app:handlers", "--worker-id", "w1", *options) as command:
        heard(command, "worker_started")
        yield command


def heard(command: Command, words: str) -> str:
    """The next line on stderr that has these words; the test's limit ends a wait in vain."""
    while words not in (line := command.stderr_line()):
        assert line, f"it ended without {words!r}"
    return line


def holding(url: str, app: Path, event_type: str = "wait") -> str:
    """The tracking id of an event that the worker has in hand."""
    event = added(url, event_type)
    until((app / "began-1").exists, "the handler's start")
    return event


def test_a_worker_handles_events_and_a_signal_lets_it_finish_what_it_has_in_hand(url, app):
    with working(url) as worker:
        added(url, "note", 7)
        until((app / "noted-7").exists, "the first event's handling")
        event = holding(url, app)
        worker.child.send_signal(signal.SIGTERM)
        assert "in_flight=1" in heard(worker, "worker_stopping")
        late = added(url, "note", 8)
        (app / "go").touch()
        code, out, err = worker.end()
    assert (code, out) == (0, "")
    assert "worker_stopped outbox=outbox worker_id=w1" in err
    assert row_of(url, event).status is Status.COMPLETED
    assert row_of(url, late).status is Status.PENDING


def test_a_second_signal_ends_it_at_once_with_130(sqlite_url, app):
    prepare(sqlite_url)
    with working(sqlite_url) as worker:
        event = holding(sqlite_url, app)
        worker.child.send_signal(signal.SIGINT)
        heard(worker, "worker_stopping")
        worker.child.send_signal(signal.SIGTERM)
        assert worker.end()[0] == 130
    assert row_of(sqlite_url, event).status is Status.PROCESSING


def test_what_a_killed_worker_held_is_recovered_by_a_reaper_of_its_own(url, app):
    lease = lease_for(url, "600ms")
    with working(url, "--lease", lease) as worker:
        event = holding(url, app)
        worker.child.kill()
        worker.child.wait()
    with Command(url, "reaper", "--lease", lease, "--every", "100ms") as reaper:
        assert f"tracking_id={event}" in heard(reaper, "event_recovered")
        row = row_of(url, event)
        assert (row.status, row.retry_count) == (Status.PENDING, 1)
        assert "lease expired: w1/" in (row.last_error or "")
        with Command(url, "worker", "app:handlers", "--no-reaper", "--lease", "10s") as other:
            until((app / "began-2").exists, "the second try")
            (app / "go").touch()
            until(lambda: row_of(url, event).status is Status.COMPLETED, "its completion")
            other.child.send_signal(signal.SIGTERM)
            assert other.end()[0] == 0
        reaper.child.send_signal(signal.SIGTERM)
        code, _, err = reaper.end()
    assert code == 0
    assert "reaper_stopped" in err


def test_a_worker_survives_the_loss_of_its_connections(postgres_url, app):
    prepare(postgres_url)
    with working(postgres_url) as worker:
        with psycopg.connect(postgres_url, autocommit=True) as other:
            others = "FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND datname = current_database()"
            other.execute(f"SELECT pg_terminate_backend(pid) {others}".encode())
        added(postgres_url, "note", 7)
        until((app / "noted-7").exists, "the event's handling")
        worker.child.send_signal(signal.SIGTERM)
        assert worker.end()[0] == 0


def test_a_handler_that_does_not_end_in_time_is_left_behind_and_that_is_1(sqlite_url, app):
    prepare(sqlite_url)
    with working(sqlite_url, "--lease", "5s", "--shutdown-timeout", "200ms") as worker:
        holding(sqlite_url, app, "stubborn")
        worker.child.send_signal(signal.SIGTERM)
        code, _, err = worker.end()
    assert code == 1
    assert "a handler did not end in time" in err


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM], ids=lambda signum: signum.name)
def test_a_second_signal_ends_it_at_once_also_while_a_handler_blocks_the_event_loop(sqlite_url, app, signum):
    prepare(sqlite_url)
    with working(sqlite_url) as worker:
        event = holding(sqlite_url, app, "block")
        until(lambda: signalled(worker, signum), "its end", 10)
        assert worker.end()[0] == 130
    assert row_of(sqlite_url, event).status is Status.PROCESSING


def signalled(worker: Command, signum: signal.Signals) -> bool:
    """Sent again and again: two that come at the same moment are one to the kernel, and nothing tells of the first."""
    worker.child.send_signal(signum)
    return worker.child.poll() is not None


@pytest.mark.parametrize("output", ["table", "json"])
def test_a_handler_that_blocks_the_event_loop_is_left_behind_by_name_and_that_is_1(sqlite_url, app, output):
    prepare(sqlite_url)
    with working(sqlite_url, "--lease", "5s", "--shutdown-timeout", "200ms", "-o", output) as worker:
        event = holding(sqlite_url, app, "block")
        worker.child.send_signal(signal.SIGTERM)
        code, _, err = worker.end(5)
    assert code == 1
    line = next(line for line in err.splitlines() if "left_behind" in line)
    assert "ERROR" in line
    if output == "json":
        assert (json.loads(line)["events"], json.loads(line)["tracking_ids"]) == (1, [event])
    else:
        assert f"left_behind events=1 tracking_ids={event}" in line


@pytest.mark.parametrize(
    ("event_type", "words"), [("block", "event loop has not turned"), ("stubborn", "all its 1 places")]
)
def test_a_worker_that_can_handle_nothing_any_more_gives_up_with_80_if_it_is_told_to(
    sqlite_url, app, event_type, words
):
    """A supervisor starts it anew. What blocks the event loop, or hangs on a thread, keeps nothing from ending."""
    prepare(sqlite_url)
    options = ("--lease", "1s", "--max-processing", "1s", "--concurrency", "1", "--give-up-after", "1s")
    with working(sqlite_url, *options) as worker:
        holding(sqlite_url, app, event_type)
        code, _, err = worker.end(15)
    assert code == 80
    assert words in next(line for line in err.splitlines() if "worker_gave_up" in line)
    assert f"app.{event_type}" in err


def test_what_near_the_end_of_the_shutdown_timeout_is_still_in_hand_is_handed_back(sqlite_url, app):
    prepare(sqlite_url)
    with working(sqlite_url, "--lease", "5s", "--shutdown-timeout", "500ms") as worker:
        event = holding(sqlite_url, app)
        worker.child.send_signal(signal.SIGTERM)
        assert worker.end()[0] == 0
    row = row_of(sqlite_url, event)
    assert (row.status, row.retry_count, row.waits_s < 0) == (Status.PENDING, 0, True)


def test_a_signal_to_a_child_that_a_handler_forked_ends_the_child_and_not_the_worker(sqlite_url, app):
    prepare(sqlite_url)
    with working(sqlite_url) as worker:
        added(sqlite_url, "fork")
        until((app / "forked").exists, "the child's birth")
        os.kill(int((app / "forked").read_text()), signal.SIGTERM)
        until(lambda: (app / "ended").exists() and (app / "ended").read_text(), "the child's end")
        assert (app / "ended").read_text() == str(-signal.SIGTERM)
        added(sqlite_url, "note", 7)
        until((app / "noted-7").exists, "the next event's handling")
        worker.child.send_signal(signal.SIGTERM)
        assert worker.end()[0] == 0


def test_a_second_signal_ends_a_reaper_whose_database_does_not_answer_any_more(sqlite_url):
    prepare(sqlite_url)
    with Command(sqlite_url, "reaper", "--lease", "600s") as reaper:
        heard(reaper, "reaper_started")
        with sqlite3.connect(sqlite_url.removeprefix("sqlite:///"), isolation_level=None) as other:
            other.execute("BEGIN EXCLUSIVE")  # it cannot give back its lease, and waits
            until(lambda: signalled(reaper, signal.SIGTERM), "its end", 10)
            assert reaper.end()[0] == 130
            other.execute("ROLLBACK")


def test_the_log_is_json_when_asked_for_and_metrics_are_served(sqlite_url, app):
    prepare(sqlite_url)
    with Command(sqlite_url, "-o", "json", "worker", "app:note", "--metrics-port", "0") as worker:
        served = json.loads(heard(worker, "metrics_served"))
        heard(worker, "worker_started")
        assert served["url"].startswith("http://127.0.0.1:")
        added(sqlite_url, "anything", 7)
        until((app / "noted-7").exists, "the event's handling")
        with urllib.request.urlopen(served["url"], timeout=10) as page:
            assert "fencehold_" in page.read().decode()
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(served["url"] + "/other", timeout=10)
        worker.child.send_signal(signal.SIGTERM)
        code, _, err = worker.end()
    assert code == 0
    assert [json.loads(line)["event"] for line in err.splitlines()][-1] == "worker_stopped"


@pytest.mark.parametrize("output", ["table", "json"])
def test_the_log_has_the_whole_traceback_of_a_handler_that_failed(sqlite_url, app, output):
    prepare(sqlite_url)
    with working(sqlite_url, "-o", output) as worker:
        event = added(sqlite_url, "fail")
        said = heard(worker, "event_failed")
        traceback = json.loads(said)["traceback"] if output == "json" else worker.stderr_line()
        while not traceback.rstrip().endswith(" is down"):
            traceback += (more := worker.stderr_line())
            assert more.startswith("  "), "what an error says cannot pass for a line of the log"
    assert event in said
    assert "hunter2" not in said + traceback
    assert "Traceback (most recent call last):" in traceback
    assert f'File "{app / "app.py"}"' in traceback
    assert "in fail\n" in traceback
    assert "ConnectionError: postgresql://me:***@db/x is down" in traceback


def test_a_signal_while_the_database_does_not_answer_yet_ends_the_start(app):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"postgresql://app@127.0.0.1:{silent.getsockname()[1]}/app"
        with Command(url, "worker", "app:handlers") as started:
            asked = silent.accept()[0]
            started.child.send_signal(signal.SIGTERM)
            assert started.end(5)[0] == 0
            asked.close()


@pytest.mark.parametrize("command", [["worker", "app:handlers"], ["reaper"]], ids=lambda command: command[0])
def test_without_tables_it_does_not_start(sqlite_url, app, cli_text, command):
    answer = cli_text(sqlite_url, *command)
    assert answer.code == 78
    assert "[schema_missing]" in answer.err
    prepare(sqlite_url)
    assert cli_text(sqlite_url, *command, "--outbox", "other").code == 78


@pytest.mark.parametrize("command", [["worker", "app:handlers"], ["reaper"]], ids=lambda command: command[0])
def test_a_database_that_is_away_is_spoken_of_without_its_password(app, command):
    with Command("postgresql://app:s3cr%40t-w0rd@127.0.0.1:1/app?connect_timeout=2", *command) as waiting:
        said = heard(waiting, "store_unreachable")
        waiting.child.send_signal(signal.SIGTERM)
        code, out, err = waiting.end()
    assert code == 0
    assert "w0rd" not in said + out + err


def test_a_worker_without_a_reaper_anywhere_is_refused(sqlite_url, app, cli_text):
    prepare(sqlite_url)
    answer = cli_text(sqlite_url, "worker", "app:handlers", "--no-reaper")
    assert answer.code == 78
    assert "[no_reaper] The reaper of outbox 'outbox' has never run" in answer.err
    assert "fencehold reaper" in answer.err


@pytest.mark.parametrize("command", ["worker", "reaper", "doctor"])
def test_help_teaches_with_an_example_and_exit_codes(cli_text, command):
    answer = cli_text(None, command, "--help")
    assert (answer.code, answer.err) == (0, "")
    assert "Example" in answer.out
    assert "Exit codes" in answer.out
