"""The ground the other tests of this folder stand on: the cluster fails over, comes back, and ends with the run."""

import os
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from pathlib import Path

import psutil
import psycopg
import pytest

from tests.across_packages.cluster.modes import SYNCHRONOUS
from tests.servers.cluster import Cluster
from tests.servers.process import ServerFailed
from tests.servers.programs import ROOT
from tests.servers.test_servers import pytest_in


@pytest.mark.long
@SYNCHRONOUS
@pytest.mark.limit(120)
def test_a_switchover_moves_the_primary_to_a_higher_timeline_and_the_proxy_follows(cluster: Cluster) -> None:
    old, before = cluster.primary(), cluster.timeline(cluster.primary())
    new = cluster.switchover()
    assert new is not old
    assert cluster.timeline(new) > before
    cluster.wait_for_proxy()
    with psycopg.connect(cluster.proxy_url()) as conn:
        assert conn.execute("SELECT current_setting('port')::int").fetchone() == (new.port,)


@pytest.mark.long
@pytest.mark.limit(120)
def test_what_no_standby_saw_is_on_the_old_branch_only(cluster: Cluster, database: str) -> None:
    old = cluster.primary()
    old.freeze_walsenders()
    with psycopg.connect(old.url(database)) as conn:
        conn.execute("CREATE TABLE lost AS SELECT 7 AS n")
    old.freeze_patroni()
    old.kill_postmaster()
    with old.alone() as branch:
        old.thaw_patroni()
        new = cluster.wait_for_primary(other_than=old)
        branch.start()
        with psycopg.connect(branch.dsn(database)) as conn:
            assert conn.execute("SELECT n FROM lost").fetchone() == (7,)
    assert new.one("SELECT to_regclass('lost')::text", database) is None


@pytest.fixture
def reachable_folder() -> Iterator[Path]:
    """A folder the server's account can enter; pytest's own is closed to others."""
    with tempfile.TemporaryDirectory(prefix="fh-", dir="/tmp") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@pytest.mark.long
@pytest.mark.needs("etcd", "haproxy")
@pytest.mark.limit(180)
def test_a_cluster_dies_with_a_test_run_that_is_killed(reachable_folder: Path) -> None:
    program = """
        import time
        from tests.servers.cluster import Cluster
        cluster = Cluster()
        cluster.start()
        print(*[node.postmaster.pid for node in cluster.nodes], *[node.pid for node in cluster.nodes], flush=True)
        time.sleep(120)
    """
    command = [sys.executable, "-c", textwrap.dedent(program)]
    environment = {**os.environ, "TMPDIR": str(reachable_folder)}
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        processes = [psutil.Process(int(pid)) for pid in run.stdout.readline().split()]
        run.kill()
    assert len(processes) == 6
    _, alive = psutil.wait_procs(processes, timeout=30)
    assert alive == []


def test_a_wait_that_is_in_vain_ends_with_the_logs() -> None:
    cluster = Cluster.__new__(Cluster)
    cluster._etcd, cluster.nodes, cluster._proxy = [], [], None
    with pytest.raises(ServerFailed, match=r"no primary other than None after 0\.2 s"):
        cluster.wait_for_primary(limit_s=0.2)


NEEDY = """
    from tests.across_packages.cluster.conftest import *

    def test_it(database):
        pass
"""


@pytest.mark.parametrize(("ci", "code", "said"), [("true", 1, "etcd is missing"), ("", 0, "NOT RUN: etcd (")])
def test_without_etcd_the_tests_are_named_as_not_run_and_fail_under_ci(
    tmp_path: Path, ci: str, code: int, said: str
) -> None:
    hidden = "\nimport tests.servers.programs as programs\nprograms.SEARCH = '/nowhere'\n"
    answer = pytest_in(tmp_path, textwrap.dedent(NEEDY) + hidden, CI=ci)
    assert (answer.returncode, said in answer.stdout) == (code, True), answer.stdout
