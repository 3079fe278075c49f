"""/health/live and /health/ready of `fencehold worker` and `fencehold reaper`, asked as an orchestrator asks them."""

import json
import sqlite3
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import psycopg
import pytest

from tests.fencehold.cli.cli_process import Command, prepare, until
from tests.fencehold.cli.outbox_scene import added
from tests.fencehold.cli.worker.test_worker import heard
from tests.servers.postgres import PostgresServer

APP = """
import pathlib, time

async def block(event):
    pathlib.Path("began").touch()
    time.sleep(event.payload)

async def note(event): ...

handlers = {"block": block, "note": note}
"""
AT_ONCE_S = 1.5  # far below any limit of the database, far above what a busy machine needs


@pytest.fixture(autouse=True)
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "app.py").write_text(APP)
    monkeypatch.chdir(tmp_path)
    return tmp_path


class Asked:
    def __init__(self, metrics_url: str) -> None:
        self._root = metrics_url.removesuffix("/metrics")

    def health(self, which: str) -> tuple[int, list[str]]:
        """The status, and the codes of what is wrong; answered at once, whatever the database does."""
        began_s = time.monotonic()
        try:
            with urllib.request.urlopen(f"{self._root}/health/{which}", timeout=10) as page:
                status, body = page.status, json.load(page)
        except urllib.error.HTTPError as error:
            status, body = error.code, json.load(error)
        assert time.monotonic() - began_s < AT_ONCE_S
        assert body["status"] == ("ok" if status == 200 else "failing")
        assert all(problem["message"] for problem in body["problems"])
        return status, [problem["code"] for problem in body["problems"]]

    def until(self, which: str, status: int, codes: list[str], limit_s: float = 20) -> None:
        until(lambda: self.health(which) == (status, codes), f"{which}: {status} {codes}", limit_s)


@contextmanager
def asked(url: str, *command: str) -> Iterator[tuple[Asked, Command]]:
    with Command(url, "-o", "json", *command, "--metrics-port", "0") as started:
        yield Asked(json.loads(heard(started, "metrics_served"))["url"]), started


@pytest.mark.parametrize("command", [["worker", "app:handlers"], ["reaper"]], ids=lambda command: command[0])
def test_a_process_is_ready_while_the_database_answers_and_its_table_is_there(
    sqlite_url: str, command: list[str]
) -> None:
    prepare(sqlite_url)
    with asked(sqlite_url, *command) as (page, _):
        page.until("ready", 200, [])
        assert page.health("live") == (200, [])
        with closing(sqlite3.connect(sqlite_url.removeprefix("sqlite:///"), timeout=10)) as other:
            other.execute("DROP TABLE outbox")
        page.until("ready", 503, ["schema_missing"])
        assert page.health("live") == (200, [])


def test_a_process_that_waits_for_its_database_is_live_and_not_ready() -> None:
    with asked("postgresql://app@127.0.0.1:1/app", "worker", "app:handlers") as (page, _):
        assert page.health("live") == (200, [])
        page.until("ready", 503, ["starting"])


@pytest.mark.long
@pytest.mark.parametrize("command", [["worker", "app:handlers"], ["reaper"]], ids=lambda command: command[0])
def test_a_hung_database_is_told_at_once_and_hangs_no_answer(own_postgres: PostgresServer, command: list[str]) -> None:
    url = own_postgres.dsn()
    prepare(url)
    with asked(url, *command) as (page, _):
        page.until("ready", 200, [])
        own_postgres.freeze()
        try:
            page.until("ready", 503, ["no_answer"])
            assert page.health("live") == (200, [])
        finally:
            own_postgres.thaw()
        page.until("ready", 200, [])
        with psycopg.connect(url, autocommit=True) as other:
            other.execute("DROP TABLE outbox")
        page.until("ready", 503, ["schema_missing"])


@pytest.mark.long
def test_a_first_handler_that_blocks_the_loop_is_named_and_nothing_else_is_said(sqlite_url: str, app: Path) -> None:
    prepare(sqlite_url)
    added(sqlite_url, "block", 6)
    with asked(sqlite_url, "worker", "app:handlers") as (page, _):
        until((app / "began").exists, "the handler")
        page.until("ready", 503, ["loop_blocked"])
        with pytest.raises(urllib.error.HTTPError) as caught:
            urllib.request.urlopen(f"{page._root}/health/ready", timeout=10)
        assert "app.block blocks it" in json.load(caught.value)["problems"][0]["message"]
        page.until("ready", 200, [])


@pytest.mark.long
def test_a_blocked_loop_is_not_ready_and_after_max_processing_not_live(sqlite_url: str, app: Path) -> None:
    prepare(sqlite_url)
    limits = ["--lease", "2s", "--max-processing", "5s"]
    with asked(sqlite_url, "worker", "app:handlers", *limits) as (page, _):
        page.until("ready", 200, [])
        added(sqlite_url, "block", 9)
        until((app / "began").exists, "the handler")
        page.until("ready", 503, ["loop_blocked"])
        assert page.health("live") == (200, [])
        page.until("live", 503, ["loop_blocked"])
        page.until("ready", 200, [])
        assert page.health("live") == (200, [])
