"""One cluster of three PostgreSQL nodes under Patroni for all tests of this folder, started when the first asks.

| fixture     | gives                                                                                             |
| ----------- | ------------------------------------------------------------------------------------------------- |
| `cluster`   | the session's cluster (tests/servers/cluster.py), whole again: one primary, two streaming standbys |
| `database`  | the name of an empty database on it: `cluster.url(database)`, `cluster.proxy_url(database)`         |

Replication is asynchronous; `@SYNCHRONOUS` and `@EITHER` (modes.py) change that. A test may leave the cluster broken:
the next one gets it mended, or a new one. Without etcd, HAProxy or Patroni the tests are not run, and under CI they
fail. Tests that need the cluster belong into this folder, so that one run starts one cluster.
"""

from collections.abc import Iterator
from contextlib import suppress

import pytest

from tests.conftest import not_run
from tests.servers.cluster import Cluster
from tests.servers.process import ServerFailed
from tests.servers.programs import Missing


class ClusterOfTheSession:
    """At most one at a time; one that cannot be mended is thrown away."""

    def __init__(self) -> None:
        self._running: Cluster | None = None

    def whole(self, *, synchronous: bool) -> Cluster:
        if self._running is not None:
            with suppress(ServerFailed):
                self._running.rejoin()
                self._running.set_synchronous(synchronous)
                return self._running
            self.close()
        self._running = Cluster()
        self._running.start(synchronous=synchronous)
        return self._running

    def close(self) -> None:
        if self._running is not None:
            self._running.close()
        self._running = None


@pytest.fixture(scope="session")
def cluster_of_the_session() -> Iterator[ClusterOfTheSession]:
    kept = ClusterOfTheSession()
    try:
        yield kept
    finally:
        kept.close()


def asked_for(kept: ClusterOfTheSession, request: pytest.FixtureRequest) -> Cluster:
    """The cluster in the mode that the test asks for."""
    mode = getattr(request, "param", "asynchronous")
    try:
        return kept.whole(synchronous=mode == "synchronous")
    except Missing as missing:
        not_run(request.config, missing)


@pytest.fixture
def cluster(cluster_of_the_session: ClusterOfTheSession, request: pytest.FixtureRequest) -> Cluster:
    return asked_for(cluster_of_the_session, request)


@pytest.fixture
def database(cluster: Cluster) -> str:
    return cluster.new_database()
