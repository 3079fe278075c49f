"""Leaders and their fenced writes through every kind of failover, judged by what all of them saw and what survived."""

import asyncio
from collections.abc import Callable

import pytest

from fencehold.testing.history import boottime_s
from tests.across_packages.cluster.candidates import HOSTS, PLAIN, PROXY, Stage, on_stage
from tests.across_packages.cluster.modes import EITHER, SYNCHRONOUS
from tests.servers.cluster import Cluster
from tests.servers.patroni import TTL_S, PatroniNode

Blow = Callable[[Cluster], PatroniNode]
SPLIT_S = 7.0  # longer than a lease: whoever cannot renew on the old primary is no leader any more
BACK_S = 5.0  # after the database itself, also on a busy machine


def switchover(cluster: Cluster) -> PatroniNode:
    return cluster.switchover()


def postmaster_killed(cluster: Cluster) -> PatroniNode:
    old = cluster.primary()
    old.kill_postmaster()
    return cluster.wait_for_primary(other_than=old)


def power_failure(cluster: Cluster) -> PatroniNode:
    """With the whole ttl."""
    old = cluster.primary()
    old.power_off()
    return cluster.wait_for_primary(other_than=old)


def power_failure_long_ago(cluster: Cluster) -> PatroniNode:
    """The ttl is over at once."""
    old = cluster.primary()
    old.power_off()
    cluster.expire_leader_key()
    return cluster.wait_for_primary(other_than=old)


def patroni_frozen(cluster: Cluster) -> PatroniNode:
    """Its PostgreSQL runs on: there are two primaries from here on."""
    old = cluster.primary()
    old.freeze_patroni()
    cluster.wait_until_proxy_leaves()
    cluster.expire_leader_key()
    return cluster.wait_for_primary(other_than=old)


async def struck(stage: Stage, blow: Blow) -> float:
    """The blow, everybody at work again on the new primary, the cluster whole; gives when it began."""
    began_s = boottime_s()
    new = await asyncio.to_thread(blow, stage.cluster)
    await stage.until_written(PROXY, on=new.url(stage.database))
    if blow is patroni_frozen:  # whoever knows all nodes may stay with a primary that still takes writes
        await asyncio.sleep(SPLIT_S)
    else:
        await stage.until_written(HOSTS, on=new.url(stage.database))
    await asyncio.to_thread(stage.cluster.rejoin)
    await stage.until_written(HOSTS, PROXY, PLAIN)
    gaps = {name: round(stage.gap_s(name, began_s), 1) for name in (HOSTS, PROXY, PLAIN)}
    print(f"{blow.__name__}, synchronous {stage.cluster.synchronous}: seconds without an accepted write: {gaps}")
    return began_s


@pytest.mark.fault("failover-sync", "leader", "postgres")
@pytest.mark.fault("failover-sync", "fence", "postgres")
@SYNCHRONOUS
@pytest.mark.limit(180)
@pytest.mark.parametrize("blow", [switchover, pytest.param(power_failure, marks=pytest.mark.long)])
async def test_leaders_follow_the_primary_and_no_acknowledged_write_is_lost(
    cluster: Cluster, database: str, blow: Blow
) -> None:
    async with on_stage(cluster, database) as stage:
        began_s = await struck(stage, blow)
    assert stage.judged() == []
    assert stage.lost() == set()
    away_s = stage.gap_s(PLAIN, began_s)
    assert away_s < TTL_S + BACK_S
    assert max(stage.gap_s(HOSTS, began_s), stage.gap_s(PROXY, began_s)) < away_s + BACK_S


@pytest.mark.limit(180)
async def test_after_a_crash_of_the_primary_leaders_go_on_under_rising_epochs(cluster: Cluster, database: str) -> None:
    async with on_stage(cluster, database) as stage:
        await struck(stage, postmaster_killed)
    assert stage.judged(beliefs=False) == []


@EITHER
@pytest.mark.long
@pytest.mark.limit(180)
@pytest.mark.parametrize("blow", [switchover, postmaster_killed, power_failure_long_ago])
async def test_no_stale_write_is_accepted_by_the_surviving_branch(cluster: Cluster, database: str, blow: Blow) -> None:
    async with on_stage(cluster, database) as stage:
        await struck(stage, blow)
    assert stage.judged(beliefs=cluster.synchronous) == []


@pytest.mark.limit(180)
async def test_of_two_primaries_the_one_that_is_demoted_leaves_nothing_behind(cluster: Cluster, database: str) -> None:
    async with on_stage(cluster, database) as stage:
        await struck(stage, patroni_frozen)
    assert stage.judged(beliefs=False) == []
    assert not any(value.startswith("proxy") for value in stage.lost()), "HAProxy left a session on the old primary"


@SYNCHRONOUS
@pytest.mark.long
@pytest.mark.limit(180)
async def test_with_two_primaries_in_synchronous_mode_nothing_acknowledged_is_lost(
    cluster: Cluster, database: str
) -> None:
    async with on_stage(cluster, database) as stage:
        await struck(stage, patroni_frozen)
    assert stage.judged() == []
    assert stage.lost() == set()
