"""3,000 events and 500 intents while the database fails over five times.

In synchronous mode nothing is lost. In asynchronous mode exactly that is lost which the database lost: the referee
reads it from the old primaries' data. In neither is an event completed twice, or an intent handled by a stale leader.
"""

import asyncio
from pathlib import Path

import pytest

from tests.across_packages.cluster.modes import SYNCHRONOUS
from tests.across_packages.cluster.under_load import FailingOver, Losing
from tests.fencehold.runtime.outbox.crash_run.chaos import Blow
from tests.fencehold.runtime.outbox.crash_run.database import prepare
from tests.fencehold.runtime.outbox.crash_run.run import Options, Run
from tests.servers.cluster import Cluster
from tests.submission_manager.demo.scene import Scene, a_scene, intent
from tests.submission_manager.instance.fleet import until
from tests.submission_manager.instance.test_behind_haproxy import NO_FAULTS

EVENTS, INTENTS, FAILOVERS = 3000, 500, 5
FEW = (300, 60, 1)


def options(events: int, failovers: int) -> Options:
    return Options(seconds=failovers + 1.0, events=events, workers=2, lease_s=3.0, calm_s=1.0)


def blows(failovers: int) -> list[Blow]:
    """The next begins when the cluster is whole again and a second has passed."""
    return [Blow(at_s=float(number), kind="restart") for number in range(1, failovers + 1)]


async def submitted(scene: Scene, database: FailingOver, count: int, failovers: int) -> None:
    """A part before each failover and after the last."""
    step = -(-count // (failovers + 1))
    for number in range(failovers + 1):

        async def came(wanted: int = number) -> bool:
            return database.failovers >= wanted

        await until(came, f"failover {number} did not come")
        scene.want(*map(intent, range(number * step, min(number * step + step, count))))


async def all_over(scene: Scene) -> None:
    async def over() -> bool:
        scene.load.check()
        glance = await scene.glance()
        return glance is not None and scene.load.is_done and glance.pending == 0

    await until(over, f"not all intents are over: {list(scene.load.last_trouble)}")


@pytest.mark.fault("failover-sync", "outbox", "postgres")
@pytest.mark.fault("failover-sync", "service", "postgres")
@SYNCHRONOUS
@pytest.mark.needs("haproxy")
@pytest.mark.limit(400)
@pytest.mark.parametrize("load", [FEW, pytest.param((EVENTS, INTENTS, FAILOVERS), marks=pytest.mark.long)])
async def test_in_synchronous_mode_nothing_is_lost_and_nothing_done_twice(
    cluster: Cluster, database: str, tmp_path: Path, load: tuple[int, int, int]
) -> None:
    url, (events, intents, failovers) = cluster.url(database), load
    await asyncio.to_thread(prepare, url)
    failing = FailingOver(cluster, database, failovers)
    async with a_scene(url, tmp_path) as scene:
        await scene.start()
        run = Run(options(events, failovers), failing, tmp_path, print, failing.pace)
        outcome, _ = await asyncio.gather(run.play(blows(failovers)), submitted(scene, failing, intents, failovers))
        await all_over(scene)
        found = await scene.verdict()
    assert outcome.verdict.violations == [], outcome.verdict.shown()
    assert (found.faults, found.intents_accepted) == (NO_FAULTS, intents)
    assert (failing.failovers, len(run.fed)) == (failovers, events)
    assert_under_load(failing, events)


@pytest.mark.fault("failover-async", "outbox", "postgres")
@pytest.mark.fault("failover-async", "service", "postgres")
@pytest.mark.long
@pytest.mark.needs("haproxy")
@pytest.mark.limit(400)
async def test_in_asynchronous_mode_exactly_that_is_lost_which_the_database_lost(
    cluster: Cluster, database: str, tmp_path: Path
) -> None:
    url = cluster.url(database)
    await asyncio.to_thread(prepare, url)
    losing = Losing(cluster, database, FAILOVERS)
    async with a_scene(url, tmp_path) as scene:
        await scene.start()
        run = Run(options(EVENTS, FAILOVERS), losing, tmp_path, print, losing.pace)
        outcome, _ = await asyncio.gather(run.play(blows(FAILOVERS)), submitted(scene, losing, INTENTS, FAILOVERS))
        await all_over(scene)
        found, left = await scene.verdict(), await scene.rows("SELECT intent_id FROM submission_intents")
    assert judged_as_lost(outcome.verdict.violations) != [], "nothing was lost: the run proves nothing"
    assert min(losing.lost_each) > 0, "a failover that lost nothing proves nothing"
    assert_under_load(losing, EVENTS)
    kept = {row.tracking_id: row.status for row in losing.rows()}
    assert set(run.fed) - set(kept) == (losing.lost.events & set(run.fed)) - set(kept)
    assert (set(kept.values()), losing.completed_twice()) == ({"COMPLETED"}, [])
    intents = {row[0] for row in left}
    assert set(scene.load.acknowledged) - intents == losing.lost.intents - intents
    assert (found.starts_under_an_old_epoch, found.records_under_an_old_epoch) == (0, 0)


def assert_under_load(failing: FailingOver, events: int) -> None:
    """Events were added before each failover, and more of them were still to come."""
    began_with = [0, *failing.added_from, events]
    assert began_with == sorted(set(began_with)), "a failover met an outbox in which nothing happened"


def judged_as_lost(violations: list[str]) -> list[str]:
    """What the referee of the synchronous run would object to."""
    return [one for one in violations if "lost, it was added" in one]
