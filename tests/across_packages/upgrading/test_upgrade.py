"""Leaders and workers of an older commit, and an upgrade under them: no term is lost, and both versions go on together.

The older version comes out of this repository's own history, into a scratch folder.
"""

import json
import os
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.across_packages.upgrading.resident import connected
from tests.conftest import not_run
from tests.servers.programs import Missing

OLD = "6dea8aa5296a84199ec84e1d0024ef379d74186b"
ROOT = Path(__file__).resolve().parents[3]
WITHIN_S = 40.0
HELD_BY = "SELECT holder_id, lease_epoch FROM fencehold_leases WHERE lease_name = 'job'"

pytestmark = [pytest.mark.long, pytest.mark.limit(180)]


@pytest.fixture(scope="module")
def old_source(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("older")
    command = ["git", "-C", str(ROOT), "archive", "--format=tar", "--output", str(folder / "src.tar"), OLD, "src"]
    try:
        subprocess.run(command, check=True, capture_output=True, timeout=60)
    except (OSError, subprocess.CalledProcessError):
        why = "not in this clone's history; `git fetch --unshallow` brings it"
        not_run(request.config, Missing(f"commit {OLD[:7]}", why))
    with tarfile.open(folder / "src.tar") as packed:
        packed.extractall(folder, filter="data")
    return folder / "src"


class Process:
    """One resident; its lines are read as they come."""

    def __init__(self, source: Path, role: str, url: str, name: str, log: Path) -> None:
        self.log = log
        with log.open("wb") as errors:
            self.child = subprocess.Popen(
                [sys.executable, Path(__file__).with_name("resident.py"), role, url, name],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True, env=environment(source),
            )  # fmt: skip
        self.told: list[dict[str, Any]] = []
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.child.stdout is not None
        for line in self.child.stdout:
            self.told.append(json.loads(line))

    def say(self, command: str) -> None:
        assert self.child.stdin is not None
        self.child.stdin.write(f"{command}\n")
        self.child.stdin.flush()

    def all(self, event: str) -> list[dict[str, Any]]:
        return [fact for fact in list(self.told) if fact["event"] == event]

    def once(self, event: str, more_than: int = 0) -> dict[str, Any]:
        """The last of more than so many facts of this kind."""
        until(lambda: len(self.all(event)) > more_than, f"{event} of {self.log.name}: {self.log.read_text()}")
        return self.all(event)[-1]

    def ends(self) -> None:
        self.say("stop")
        self.once("stopped")
        assert self.child.wait(WITHIN_S) == 0

    def close(self) -> None:
        self.child.kill()
        self.child.communicate()


def until(condition: Callable[[], object], what: str) -> None:
    give_up_s = time.monotonic() + WITHIN_S
    while not condition():
        assert time.monotonic() < give_up_s, f"waited in vain for {what}"
        time.sleep(0.02)


def environment(source: Path) -> dict[str, str]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("FENCEHOLD", "PYTHON"))}
    return {**kept, "PYTHONPATH": f"{source}{os.pathsep}{ROOT}"}


def query(url: str, statement: str) -> list[Any]:
    with closing(connected(url)) as connection:
        cursor = connection.execute(statement)
        found = cursor.fetchall() if cursor.description else []
        connection.commit()
        return list(found)


class Scene:
    def __init__(self, url: str, old_source: Path, folder: Path, stack: ExitStack) -> None:
        self.url, self._old, self._folder, self._stack = url, old_source, folder, stack

    def start(self, version: str, role: str, name: str) -> Process:
        source = self._old if version == "old" else ROOT / "src"
        process = Process(source, role, self.url, name, self._folder / f"{name}.log")
        self._stack.callback(process.close)
        assert Path(process.once("started")["source"]).is_relative_to(source)
        return process

    def init(self, version: str) -> subprocess.Popen[str]:
        source = self._old if version == "old" else ROOT / "src"
        process = subprocess.Popen(
            [sys.executable, "-m", "fencehold.cli", "init"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env={**environment(source), "FENCEHOLD_DSN": self.url},
        )  # fmt: skip
        self._stack.callback(process.kill)
        return process

    def upgrade(self, leader: Process) -> list[str]:
        """On PostgreSQL a transaction that uses the lease table is open meanwhile, for longer than a lease."""
        if self.url.startswith("sqlite:"):
            return applied(self.init("new"))
        with psycopg.connect(self.url, application_name="report") as reader:
            reader.execute("SELECT FROM fencehold_leases")
            process = self.init("new")
            assert process.stderr is not None
            assert "waiting: The table fencehold_leases is in use by session" in process.stderr.readline()
            renewed = self.renewed_at()
            until(lambda: (self.renewed_at() - renewed).total_seconds() > 8.0, "renewals while init waits")
            assert not leader.all("over")
            reader.rollback()
            return applied(process)

    def renewed_at(self) -> Any:
        return query(self.url, "SELECT renewed_at FROM fencehold_leases WHERE lease_name = 'job'")[0][0]

    def statuses(self) -> dict[str, str]:
        return dict(query(self.url, "SELECT CAST(tracking_id AS varchar(36)), status FROM outbox"))


def applied(process: subprocess.Popen[str]) -> list[str]:
    out, err = process.communicate(timeout=WITHIN_S)
    assert process.returncode == 0, out + err
    return out.partition("applied ")[2].strip().split(", ")


@pytest.fixture(params=["postgres", "sqlite"])
def scene(request: pytest.FixtureRequest, old_source: Path, tmp_path: Path) -> Iterator[Scene]:
    with ExitStack() as stack:
        found = Scene(request.getfixturevalue(f"{request.param}_url"), old_source, tmp_path, stack)
        assert "0001_leases" in applied(found.init("old"))
        query(found.url, "CREATE TABLE tally (n integer)")
        query(found.url, "INSERT INTO tally VALUES (0)")
        yield found


def test_an_upgrade_under_a_leader_of_the_older_version_loses_no_term(scene: Scene) -> None:
    leader = scene.start("old", "leader", "old-1")
    assert leader.once("leading")["epoch"] == 1
    leader.once("wrote")
    assert "0002_lease_id" in scene.upgrade(leader)
    leader.once("wrote", more_than=len(leader.all("wrote")) + 20)  # two seconds and more: it has renewed since
    assert query(scene.url, HELD_BY) == [("old-1", 1)]
    assert not leader.all("over")
    assert "leader_lost" not in leader.log.read_text()
    leader.say("acquire first-held-after-the-upgrade")
    assert leader.once("acquired")["epoch"] == 1


def test_a_lease_passes_from_one_version_to_the_other_and_back_with_a_rising_epoch(scene: Scene) -> None:
    first = scene.start("old", "leader", "old-1")
    first.once("wrote")
    applied(scene.init("new"))
    for epoch, (version, name) in enumerate([("new", "new-1"), ("old", "old-2"), ("new", "new-2")], start=2):
        successor = scene.start(version, "leader", name)
        first.ends()
        assert successor.once("leading")["epoch"] == epoch
        successor.once("wrote")
        first = successor
    first.ends()


def test_workers_of_both_versions_handle_the_events_of_both(scene: Scene) -> None:
    old = scene.start("old", "worker", "old-worker")
    old.once("working")
    old.say("add old-worker")
    old.once("handled")
    applied(scene.init("new"))
    new = scene.start("new", "worker", "new-worker")
    new.once("working")
    for producer in (old, new):
        for event_type in ("old-worker", "new-worker", "any"):
            producer.say(f"add {event_type}")
        producer.once("added", more_than=2)
    until(lambda: set(scene.statuses().values()) == {"COMPLETED"}, "every event")
    assert len(scene.statuses()) == 7
    assert {fact["event_type"] for fact in old.all("handled")} >= {"old-worker"}
    assert {fact["event_type"] for fact in new.all("handled")} >= {"new-worker"}
    handled = [fact["tracking_id"] for process in (old, new) for fact in process.all("handled")]
    assert sorted(handled) == sorted(scene.statuses())
    for process in (old, new):
        process.ends()


def test_a_new_program_before_the_upgrade_ends_and_disturbs_no_leader(scene: Scene) -> None:
    leader = scene.start("old", "leader", "old-1")
    leader.once("wrote")
    early = scene.start("new", "leader", "too-early")
    until(lambda: early.child.poll() is not None, "the end of the new program")
    assert "schema_old" in early.log.read_text()
    leader.once("wrote", more_than=len(leader.all("wrote")))
    assert not leader.all("over")
