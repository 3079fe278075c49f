"""The files of deploy/patroni do what they say on a real cluster."""

import asyncio
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import psycopg
import pytest
import yaml

import fencehold
from tests.across_packages.cluster.modes import SYNCHRONOUS
from tests.fencehold.runtime.outbox.scene import eventually
from tests.servers.cluster import Cluster
from tests.servers.patroni import PatroniNode
from tests.servers.process import ServerProcess, hand_over
from tests.servers.programs import ROOT, require

PLACE = ROOT / "deploy" / "patroni"


class DeployedProxy(ServerProcess):
    """HAProxy with deploy/patroni/haproxy.cfg as it stands."""

    name = "deployed"
    mark = "haproxy"

    def __init__(self, cluster: Cluster) -> None:
        self._program = require("haproxy")
        super().__init__()
        self._nodes = cluster.nodes
        self._config = self.folder / "haproxy.cfg"  # the server's account may not reach the source tree
        self._config.write_bytes((PLACE / "haproxy.cfg").read_bytes())
        hand_over(self._config)

    def command(self) -> Sequence[str | Path]:
        return [self._program, "-db", "-f", self._config]

    def environment(self) -> Mapping[str, str]:
        nodes = {f"PG_{node.number}": f"127.0.0.1:{node.port}" for node in self._nodes}
        rests = {f"PG_{node.number}_REST": str(node.rest_port) for node in self._nodes}
        return {"PG_BIND": f"127.0.0.1:{self.port}", **nodes, **rests}

    def answers(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0


@pytest.fixture
def proxy(cluster: Cluster) -> Iterator[DeployedProxy]:
    made = DeployedProxy(cluster)
    try:
        made.start()
        yield made
    finally:
        made.close()


async def made_by(store: fencehold.Store) -> bool:
    try:
        await store.init()
    except fencehold.Unavailable:
        return False
    return True


@pytest.mark.long
@SYNCHRONOUS
@pytest.mark.limit(240)
async def test_a_patroni_that_hangs_is_left_by_every_session_before_another_node_is_promoted(
    cluster: Cluster, database: str, proxy: DeployedProxy
) -> None:
    old = cluster.primary()
    url = f"postgresql://postgres@127.0.0.1:{proxy.port}/{database}"
    async with fencehold.connect(url, durable="replicated") as store:
        await eventually(lambda: made_by(store))  # the proxy may still lead to the primary before
        async with store.leader("job", lease="60s", renew_every="1s") as leader:
            assert await leader.wait_for_leadership(60)
            with await asyncio.to_thread(connected, url, old) as session:
                old.freeze_patroni()
                await asyncio.to_thread(until_cut, session)
            assert all(node.one("SELECT pg_is_in_recovery()") for node in cluster.nodes if node is not old)
            new = await asyncio.to_thread(cluster.wait_for_primary, other_than=old)
            async with asyncio.timeout(60):
                while not (leader.term and await writes(leader.term)):  # noqa: ASYNC110 - until it writes
                    await asyncio.sleep(0.1)
    assert new.one("SELECT count(*) FROM t", database) == 0
    old.thaw_patroni()


def connected(url: str, node: PatroniNode) -> psycopg.Connection[Any]:
    """A session at this node. Until its first checks the proxy takes every node for a primary; then it cuts some."""
    while True:  # the limit of the test ends it
        try:
            session = psycopg.connect(url, autocommit=True)
            if session.execute("SELECT inet_server_port()").fetchone() == (node.port,):
                return session
            session.close()
        except psycopg.OperationalError:
            time.sleep(0.1)


def until_cut(session: psycopg.Connection[Any]) -> None:
    with pytest.raises(psycopg.OperationalError):
        session.execute("SELECT pg_sleep(30)")


async def writes(term: fencehold.Term) -> bool:
    try:
        async with term.transaction() as tx:
            await tx.execute("CREATE TABLE t (a int)")
    except fencehold.FenceholdError:
        return False
    return True


@pytest.mark.long
@SYNCHRONOUS
@pytest.mark.limit(180)
def test_patroni_takes_the_settings_of_the_file(cluster: Cluster) -> None:
    wanted = yaml.safe_load((PLACE / "patroni.yml").read_text())["bootstrap"]["dcs"]
    kept = cluster.primary().rest("/config")
    answer = cluster.primary().rest("/config", "PATCH", wanted)
    cluster.primary().rest("/config", "PUT", kept)
    assert {name: answer[name] for name in wanted if name != "postgresql"} == {
        name: value for name, value in wanted.items() if name != "postgresql"
    }
    cluster.wait_until_whole()


def test_the_file_asks_for_a_standby_that_cannot_be_done_without_and_for_a_watchdog() -> None:
    file = yaml.safe_load((PLACE / "patroni.yml").read_text())
    shared = file["bootstrap"]["dcs"]
    assert (shared["synchronous_mode"], shared["synchronous_mode_strict"], shared["check_timeline"]) == (True,) * 3
    assert file["watchdog"]["mode"] == "required"
    assert shared["ttl"] >= shared["loop_wait"] + 2 * shared["retry_timeout"]
