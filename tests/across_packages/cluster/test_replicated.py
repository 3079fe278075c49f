"""durable="replicated" on a real cluster: what was answered yes is on the node that takes over."""

import asyncio
from contextlib import suppress

import psycopg
import pytest

import fencehold
from fencehold.connect import backend_for
from fencehold.model.durable import durable
from fencehold.model.election.rules import Ask, Lease
from fencehold.model.errors import FenceholdError, Unavailable
from fencehold.ports.backend import Backend
from tests.across_packages.cluster.modes import SYNCHRONOUS
from tests.servers.cluster import Cluster

LIMIT_S = 20.0
TABLE = "fencehold_leases"


@pytest.mark.long
@pytest.mark.limit(180)
async def test_an_asynchronous_cluster_is_refused(cluster: Cluster, database: str) -> None:
    with pytest.raises(FenceholdError, match="synchronous_standby_names is empty") as caught:
        await fencehold.connect(cluster.url(database), durable="replicated", open_timeout=0).open()
    assert caught.value.code == "no_standby"


@pytest.mark.long
@SYNCHRONOUS
@pytest.mark.limit(240)
async def test_every_grant_and_fenced_write_that_was_answered_is_on_the_node_that_takes_over(
    cluster: Cluster, database: str
) -> None:
    """With commits that wait for nobody by themselves: only what the store asks for makes them wait."""
    old = cluster.primary()
    with psycopg.connect(old.url(), autocommit=True) as conn:
        conn.execute(f"ALTER DATABASE {database} SET synchronous_commit = off".encode())
    async with fencehold.connect(cluster.url(database), durable="replicated") as store:
        await store.init()
        async with store.leader("job", lease="60s") as leader:
            assert await leader.wait_for_leadership(30)
            assert leader.term is not None
            async with leader.term.transaction() as tx:
                await tx.execute("CREATE TABLE answered AS SELECT 7 AS n")
            await asyncio.to_thread(old.power_off)
            new = await asyncio.to_thread(cluster.wait_for_primary, other_than=old)
            assert new.one("SELECT n FROM answered", database) == 7
            assert new.one(f"SELECT lease_epoch FROM {TABLE} WHERE lease_name = 'job'", database) == 1


@pytest.mark.long
@SYNCHRONOUS
@pytest.mark.limit(240)
async def test_what_no_standby_saw_was_not_answered(cluster: Cluster, database: str) -> None:
    backend = backend_for(cluster.url(database), TABLE, None, durable("replicated"))()
    await backend.schema.init(LIMIT_S)
    await backend.open(LIMIT_S)
    old = cluster.primary()
    old.freeze_walsenders()
    with pytest.raises(FenceholdError):
        await backend.leases.acquire(Ask("job", "ada", 60.0, "n"), 2.0)
    await asyncio.to_thread(old.power_off)
    await asyncio.to_thread(cluster.wait_for_primary, other_than=old)
    lease = await granted(backend, Ask("job", "bob", 60.0, "m"))
    assert lease.holder_id == "bob"
    await backend.close()


async def granted(backend: Backend, ask: Ask) -> Lease:
    """Once the new primary has a standby of its own: until then it is refused."""
    async with asyncio.timeout(60):
        while True:
            with suppress(Unavailable):
                answer = await backend.leases.acquire(ask, LIMIT_S)
                assert isinstance(answer, Lease)
                return answer
            await asyncio.sleep(0.1)
