"""A standby that is promoted without the last acquire never issues its epoch a second time.

The referee knows the grants of both branches: those of the lost one from whoever was granted them, and from the old
primary's data, started alone.
"""

import asyncio
import os

import pytest

import fencehold
from fencehold.testing.history import check
from tests.across_packages.cluster.conftest import ClusterOfTheSession, asked_for
from tests.across_packages.cluster.losing import (
    EPOCHS_BEFORE,
    LONG,
    NEW_NAME,
    OLD_NAME,
    Story,
    a_lost_promotion,
    prepare,
)
from tests.servers.cluster import Cluster

LOST = 20
PROMOTIONS = int(os.environ.get("FENCEHOLD_TEST_PROMOTIONS", "5"))  # `make cluster`: 20, each of which loses one
LOST_BY_EACH = LOST // PROMOTIONS


@pytest.fixture(scope="module")
def story(cluster_of_the_session: ClusterOfTheSession, request: pytest.FixtureRequest) -> Story:
    """One failover for all that is asked about it."""
    cluster = asked_for(cluster_of_the_session, request)
    return asyncio.run(asyncio.wait_for(a_lost_promotion(cluster, cluster.new_database()), 120))


@pytest.mark.fault("failover-async", "leader", "postgres")
@pytest.mark.limit(150)
def test_an_epoch_that_the_promoted_standby_never_saw_is_not_issued_again(story: Story) -> None:
    *_, lost, after = story.epochs(OLD_NAME)
    assert after > lost
    assert [str(one) for one in check(story.history)] == []


@pytest.mark.limit(150)
def test_a_name_born_on_the_lost_branch_is_born_again_with_a_higher_epoch(story: Story) -> None:
    lost, after = story.epochs(NEW_NAME)
    assert after > lost


@pytest.mark.fault("failover-async", "fence", "postgres")
@pytest.mark.limit(150)
def test_a_fenced_write_of_the_lost_branch_is_refused_by_the_surviving_one(story: Story) -> None:
    assert story.stale_write == "LeaseLost"
    assert story.ledger == []


@pytest.mark.limit(150)
def test_control_the_grants_and_the_write_were_made_and_were_lost(story: Story) -> None:
    lost_old, lost_new = story.epochs(OLD_NAME)[EPOCHS_BEFORE], story.epochs(NEW_NAME)[0]
    assert story.lost_leases == {OLD_NAME: ("A", lost_old), NEW_NAME: ("A", lost_new)}
    assert story.lost_ledger == [("A", lost_old, "lost")]


async def lost_acquires(cluster: Cluster, database: str, story: Story, count: int) -> None:
    """So many grants of one name that no standby sees; then the primary dies."""
    old = await asyncio.to_thread(cluster.primary)
    old.freeze_walsenders()
    async with fencehold.connect(old.url(database)) as store:
        for _ in range(count):
            await store.leases.release(story.granted(await store.leases.acquire(OLD_NAME, "A", LONG)))
    old.kill_postmaster()
    await asyncio.to_thread(cluster.wait_for_primary, other_than=old)
    await asyncio.to_thread(cluster.wait_until_whole)


@pytest.mark.fault("failover-async", "leader", "postgres")
@pytest.mark.long
@pytest.mark.limit(400)
async def test_epochs_rise_over_twenty_lost_acquires(cluster: Cluster, database: str) -> None:
    story = await prepare(cluster.url(database))
    await asyncio.to_thread(cluster.wait_until_whole)
    for _ in range(PROMOTIONS):
        await lost_acquires(cluster, database, story, LOST_BY_EACH)
        async with fencehold.connect(cluster.url(database)) as store:
            await store.leases.release(story.granted(await store.leases.acquire(OLD_NAME, "B", LONG)))
        await asyncio.to_thread(cluster.wait_until_whole)
    assert len(story.epochs(OLD_NAME)) == EPOCHS_BEFORE + PROMOTIONS * (LOST_BY_EACH + 1)
    assert [str(one) for one in check(story.history)] == []


@pytest.mark.long
@pytest.mark.limit(200)
async def test_two_standbys_promoted_in_turn_from_one_row_issue_different_epochs(
    cluster: Cluster, database: str
) -> None:
    story = await prepare(cluster.url(database))
    await asyncio.to_thread(cluster.wait_until_whole)
    for _ in range(2):  # the second standby has the row that the first one had
        await lost_acquires(cluster, database, story, 1)
    async with fencehold.connect(cluster.url(database)) as store:
        story.granted(await store.leases.acquire(OLD_NAME, "C", LONG))
    assert [str(one) for one in check(story.history)] == []
    first, second, last = story.epochs(OLD_NAME)[EPOCHS_BEFORE:]
    assert first < second < last
