"""Whole runs: 60 s on both databases pass, and each weakened statement set fails by the invariant that it breaks."""

import tempfile
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.fencehold.verify.scene import Ran, folder, started, tables, until_a_fault, verify
from tests.fencehold.verify.weak_sets import POSTGRES, SETS, WeakSet, overlay
from tests.servers.postgres import AnyPostgres, PostgresServer, fresh_database

AT_ONCE = 3  # a run mostly waits
pytestmark = [pytest.mark.long, pytest.mark.limit(600)]

Runs = dict[str, "Future[Ran]"]


@pytest.fixture(scope="module")
def runs(servers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runs]:
    """All weakened runs under way, a few at a time; whoever asks for one waits for it alone."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        found = {str(weak): pool.submit(weak_run, servers, weak, tmp_path_factory.mktemp("weak")) for weak in SETS}
        yield found
        for run in found.values():
            run.cancel()


def weak_run(servers, weak: WeakSet, place: Path) -> Ran:
    """5 s find it on a quiet machine; where others keep the cores busy, a run of 20 s or a minute does."""
    for lasts in ("5s", "20s", "60s"):
        ran = run_for(lasts, servers, weak, Path(tempfile.mkdtemp(dir=place)))
        if ran.code == 1 and weak.breaks in ran.broken:
            break
    return ran


def run_for(lasts: str, servers, weak: WeakSet, place: Path) -> Ran:
    options = ("--for", lasts, "--contenders", "3", "--faults", weak.faults, "-o", "json")
    program = ("-m", "tests.fencehold.verify.weakened", str(overlay(weak, place / "statements")))
    if weak.database != POSTGRES:
        return verify(f"sqlite:///{place}/app.db", *options, program=program)
    with fresh_database(server_of(servers)) as url:
        return verify(url, *options, program=program)


def server_of(servers) -> AnyPostgres:
    from tests.conftest import GIVEN
    from tests.servers.postgres import binaries_of

    found: AnyPostgres = servers.get("given" if GIVEN else binaries_of().major)
    return found


@pytest.mark.parametrize("weak", SETS, ids=str)
def test_a_weakened_statement_set_fails_by_name(weak: WeakSet, runs: Runs, postgres_server: AnyPostgres) -> None:
    ran = runs[str(weak)].result()
    assert ran.code == 1, ran.out + ran.err
    assert ran.json["verdict"] == "broken"
    assert weak.breaks in ran.broken
    assert ran.invariant(weak.breaks)["counter_example"]


def test_a_server_that_crashes_in_the_middle_breaks_nothing(own_postgres: PostgresServer) -> None:
    with started(own_postgres.dsn(), "--for", "12s", "--contenders", "3") as child:
        until_a_fault(child)
        own_postgres.kill9()
        own_postgres.start()
        out, err = child.communicate(timeout=150)
    assert child.returncode == 0, out + err
    assert not [name for name in tables(own_postgres.dsn()) if "verify" in str(name)]


def test_a_minute_on_sqlite_passes(tmp_path: Path) -> None:
    ran = verify(f"sqlite:///{tmp_path}/app.db", "--for", "60s", "-o", "json")
    assert ran.code == 0, ran.out + ran.err
    assert ran.json["faults"].keys() == {"kill", "pause", "restart-client", "slow"}
    assert folder(tmp_path) == {}


def test_a_minute_on_postgresql_passes(postgres_url: str) -> None:
    before = tables(postgres_url)
    ran = verify(postgres_url, "--for", "60s", "-o", "json")
    assert ran.code == 0, ran.out + ran.err
    assert ran.json["faults"].keys() == {"kill", "pause", "cut", "restart-client", "slow", "clock"}
    assert tables(postgres_url) == before
