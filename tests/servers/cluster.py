"""Three PostgreSQL nodes under Patroni, three etcd members and an HAProxy: a cluster that fails over.

    cluster = Cluster()
    cluster.start(synchronous=False)              # seconds; no root needed
    cluster.url("app")                            # all nodes, target_session_attrs=read-write
    cluster.proxy_url("app")                      # HAProxy, which cuts the sessions of a demoted node
    old = cluster.primary()
    old.freeze_walsenders(); ...; old.kill_postmaster()
    new = cluster.wait_for_primary(other_than=old)
    cluster.rejoin()                              # all three nodes stream again
    cluster.close()

Every wait has a deadline and fails with the ends of all logs. Nothing outlives the test run, killed or not.
"""

import base64
import json
import time
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any
from urllib.parse import quote

import psycopg
from psycopg import sql

from tests.servers.etcd import etcd_cluster
from tests.servers.patroni import TTL_S, PatroniNode
from tests.servers.postgres import SUPERUSER, PostgresServer
from tests.servers.primary_proxy import PrimaryProxy
from tests.servers.process import ServerFailed, ServerProcess
from tests.servers.sweeper import watch_over

NODES = 3
START_LIMIT_S = 90.0
ETCD_LIMIT_S = 10.0
#: How long a failover may take: the leader key of a dead node lives for ttl; the rest is for a busy machine.
FAILOVER_LIMIT_S = TTL_S + 40.0
TIMELINE = "SELECT ('x' || left(pg_walfile_name(pg_current_wal_insert_lsn()), 8))::bit(32)::int"
STREAMING = "SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming' AND replay_lsn >= pg_current_wal_lsn()"
SYNCHRONOUS = "SELECT count(*) FROM pg_stat_replication WHERE sync_state IN ('sync', 'quorum')"


class Cluster:
    """`nodes` never changes; which one is the primary does."""

    def __init__(self) -> None:
        self._etcd = etcd_cluster()
        self._scope = f"c{uuid.uuid4().hex[:8]}"
        self.synchronous = False
        self.nodes: list[PatroniNode] = []
        self._proxy: PrimaryProxy | None = None
        self._sweeper: Any = None

    # Life

    def start(self, *, synchronous: bool = False) -> None:
        """Returns when one node is the primary and the others stream from it."""
        self.synchronous = synchronous
        ports = [member.port for member in self._etcd]
        self.nodes = [
            PatroniNode(number, self._scope, ports, synchronous=synchronous) for number in range(1, NODES + 1)
        ]
        self._proxy = PrimaryProxy([(one.number, one.port, one.rest_port) for one in self.nodes])
        self._sweeper = watch_over([part.folder for part in self._parts()])
        for member in self._etcd:
            member.begin()
        for member in self._etcd:
            member.start()
        for node in self.nodes:
            node.begin()
        self.wait_for_primary(limit_s=START_LIMIT_S)
        self.wait_until_whole(START_LIMIT_S)
        self._proxy.start()
        self.wait_for_proxy()

    def close(self) -> None:
        """Everything ends, and its folders go."""
        for part in reversed(self._parts()):
            if not isinstance(part, PatroniNode):
                part.kill9()  # nothing is to be kept, and in good order etcd takes its time
            part.close()
        if self._sweeper is not None:
            self._sweeper.stdin.close()
            self._sweeper.wait(30)

    def _parts(self) -> list[ServerProcess]:
        return [*self._etcd, *self.nodes, *([self._proxy] if self._proxy else [])]

    # Who is what

    def primary(self) -> PatroniNode:
        """The node that Patroni calls the primary now; ServerFailed when there is none."""
        found = [node for node in self.nodes if node.says_primary]
        if not found:
            raise ServerFailed("no primary" + self.log_tails())
        return found[0]

    def replicas(self) -> list[PatroniNode]:
        primary = self.primary()
        return [node for node in self.nodes if node is not primary]

    def wait_for_primary(
        self, *, other_than: PatroniNode | None = None, limit_s: float = FAILOVER_LIMIT_S
    ) -> PatroniNode:
        """The node that says so and accepts writes."""
        found: list[PatroniNode] = []

        def is_there() -> bool:
            with suppress(psycopg.Error):
                found[:] = [
                    node
                    for node in self.nodes
                    if node is not other_than and node.says_primary and not node.one("SELECT pg_is_in_recovery()")
                ]
            return bool(found)

        self._wait(is_there, limit_s, f"no primary other than {other_than}")
        return found[0]

    def wait_until_whole(self, limit_s: float = FAILOVER_LIMIT_S) -> None:
        """Both standbys have everything; in synchronous mode one of them is the synchronous one."""

        def is_whole() -> bool:
            with suppress(ServerFailed, psycopg.Error):
                primary = self.primary()
                synchronous = primary.one(SYNCHRONOUS)
                known = not self.synchronous or any(node.rest().get("sync_standby") for node in self.nodes)
                return primary.one(STREAMING) == NODES - 1 and bool(synchronous) is self.synchronous and known
            return False

        self._wait(is_whole, limit_s, "not all nodes stream")

    def wait_for_proxy(self, limit_s: float = FAILOVER_LIMIT_S) -> None:
        """HAProxy leads to the primary."""
        self._wait(self._proxy_leads_to_primary, limit_s, "HAProxy does not lead to the primary")

    def wait_until_proxy_leaves(self, limit_s: float = FAILOVER_LIMIT_S) -> None:
        """HAProxy leads nowhere: it took the primary for dead, as it does long before the ttl is over."""
        self._wait(lambda: not self._proxy_leads_to_primary(), limit_s, "HAProxy still leads to a primary")

    def timeline(self, node: PatroniNode) -> int:
        """The WAL timeline a primary writes on."""
        return int(node.one(TIMELINE))

    # What may happen

    def set_synchronous(self, synchronous: bool) -> None:
        """Change the mode of a running cluster; returns when it is in force."""
        if synchronous is not self.synchronous:
            self.synchronous = synchronous
            self.primary().rest("/config", "PATCH", {"synchronous_mode": synchronous})
        self.wait_until_whole()

    def switchover(self, to: PatroniNode | None = None) -> PatroniNode:
        """An orderly change of the primary, asked for as an operator would; gives the new one."""
        old = self.primary()
        candidate = to or self._best_candidate()
        answer = old.rest("/switchover", "POST", {"leader": repr(old), "candidate": repr(candidate)})
        if "Successfully" not in str(answer.get("said")):
            raise ServerFailed(f"switchover from {old} to {candidate}: {answer}{self.log_tails()}")
        return self.wait_for_primary(other_than=old)

    def _best_candidate(self) -> PatroniNode:
        replicas = self.replicas()
        return next((node for node in replicas if node.rest().get("sync_standby")), replicas[0])

    @contextmanager
    def losing(self, old: PatroniNode) -> Iterator[tuple[PatroniNode, PostgresServer]]:
        """The primary dies and another takes over: the new one, and a copy of what the old one held, not started.

        Freeze the walsenders of the old one first, and all it commits afterwards is in the copy alone.
        """
        old.freeze_patroni()
        old.kill_postmaster()
        with old.alone() as branch:
            old.thaw_patroni()
            yield self.wait_for_primary(other_than=old), branch

    def expire_leader_key(self) -> None:
        """What etcd does when a dead or frozen primary has not renewed its key for the ttl, done now."""
        key = base64.b64encode(f"/service/{self._scope}/leader".encode()).decode()
        request = urllib.request.Request(
            f"http://127.0.0.1:{self._etcd[0].port}/v3/kv/deleterange", json.dumps({"key": key}).encode()
        )
        with urllib.request.urlopen(request, timeout=ETCD_LIMIT_S) as answer:
            assert json.load(answer).get("deleted") == "1", "there was no leader key"

    def rejoin(self) -> None:
        """Whatever was frozen, killed or off comes back as a standby; returns when the cluster is whole again."""
        for node in self.nodes:
            if node.running:
                node.thaw()
            else:
                node.power_on()
        self.wait_for_primary()
        self.wait_until_whole()

    # Addresses

    def url(self, dbname: str = "postgres", attrs: str = "read-write") -> str:
        """All nodes; libpq takes the first that has the wanted role."""
        hosts = ",".join(f"127.0.0.1:{node.port}" for node in self.nodes)
        return f"postgresql://{SUPERUSER}@{hosts}/{dbname}?target_session_attrs={quote(attrs)}"

    def proxy_url(self, dbname: str = "postgres") -> str:
        assert self._proxy is not None, "the cluster was not started"
        return f"postgresql://{SUPERUSER}@127.0.0.1:{self._proxy.port}/{dbname}"

    def _proxy_leads_to_primary(self) -> bool:
        try:
            with psycopg.connect(self.proxy_url(), connect_timeout=2) as conn:
                return conn.execute("SELECT pg_is_in_recovery()").fetchone() == (False,)
        except psycopg.Error:
            return False

    def new_database(self) -> str:
        """The name of an empty database that all nodes have. It stays: the whole cluster is thrown away."""
        name = f"t_{uuid.uuid4().hex[:12]}"
        with psycopg.connect(self.primary().url(), autocommit=True, connect_timeout=10) as conn:
            conn.execute(sql.SQL("CREATE DATABASE {} TEMPLATE template0").format(sql.Identifier(name)))
        self.wait_until_whole()
        return name

    # Waiting

    def _wait(self, ready: Callable[[], bool], limit_s: float, complaint: str) -> None:
        give_up_at = time.monotonic() + limit_s
        while not ready():
            dead = [part for part in (*self._etcd, *self.nodes) if part.exit_code is not None]
            if dead or time.monotonic() > give_up_at:
                ended = f"; {dead} ended by itself" if dead else ""
                raise ServerFailed(f"{complaint} after {limit_s:g} s{ended}{self.log_tails()}")
            time.sleep(0.05)

    def log_tails(self) -> str:
        """The last lines of every log, for an error."""
        return "".join(f"\n--- {part.name} in {part.folder}:\n{part.log_tail(12)}" for part in self._parts())
