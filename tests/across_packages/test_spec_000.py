"""The lease tests that spec 000 says must exist, with real processes: 1, 2, 4, and the rules of epoch and boundary."""

import pytest

import fencehold
from tests.across_packages.processes import Process, contenders, execute, ledger, prepare

NAMES = "ABCDE"


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue(f"{request.param}_url"))


async def row(url: str) -> fencehold.Lease:
    async with fencehold.connect(url) as store:
        lease = await store.leases.read("job")
    assert lease is not None
    return lease


async def until_written(url: str, count: int, epoch: int) -> list[tuple[str, int, str]]:
    """Wait until so many writes were accepted under this epoch."""
    while sum(entry[1] == epoch for entry in await ledger(url)) < count:
        pass
    return await ledger(url)


async def test_1_single_leader_on_concurrent_start(url: str) -> None:
    await prepare(url)
    with contenders(url) as start:
        crowd: list[Process] = [start(name, "--lease", "5s", "--steady") for name in NAMES]
        for process in crowd:
            process.wait_for("started")
        entries = await until_written(url, count=30, epoch=1)
        leader = await row(url)
        assert {entry[:2] for entry in entries} == {(leader.holder_id, 1)}


@pytest.mark.fault("kill", "leader")
@pytest.mark.fault("freeze", "leader")
async def test_2_failover_after_expiry(url: str) -> None:
    await prepare(url)
    with contenders(url) as start:
        a = start("A", "--lease", "1s")
        a.wait_for("leading", epoch=1)
        b = start("B", "--lease", "1s")
        b.wait_for("started")
        a.kill()
        left_behind = await row(url)
        b.wait_for("leading", epoch=2)
        taken = await row(url)
        assert (left_behind.holder_id, left_behind.epoch) == ("A", 1)
        assert taken.acquired_at >= left_behind.expires_at, "taken before it had expired, by the store's clock"


async def test_4_leader_stops_immediately_on_lease_loss(url: str) -> None:
    await prepare(url)
    with contenders(url) as start:
        a = start("A", "--lease", "2s", "--steady")
        a.wait_for("leading", epoch=1)
        b = start("B", "--lease", "2s", "--steady")
        b.wait_for("started")
        await until_written(url, count=3, epoch=1)
        await execute(url, "UPDATE fencehold_leases SET expires_at = renewed_at WHERE lease_name = 'job'")
        a.wait_for("over", epoch=1)
        epochs = [entry[1] for entry in await until_written(url, count=5, epoch=2)]
        assert epochs == sorted(epochs), "a write of the old epoch was accepted after one of the new"


async def test_a_clean_stop_hands_over_without_waiting_for_expiry(url: str) -> None:
    await prepare(url)
    with contenders(url) as start:
        a = start("A", "--lease", "300s")
        a.wait_for("leading", epoch=1)
        b = start("B", "--lease", "300s")
        b.wait_for("started")
        a.stop()
        b.wait_for("leading", epoch=2)


async def test_an_unexpired_lease_blocks_even_its_own_holder_and_every_acquire_raises_the_epoch(url: str) -> None:
    await prepare(url)
    async with fencehold.connect(url) as store:
        first = await store.leases.acquire("job", "A", "300s")
        assert first is not None
        assert await store.leases.acquire("job", "A", "300s") is None
        renewed = await store.leases.renew(first, "300s")
        assert renewed is not None
        assert renewed.epoch == first.epoch == 1
        assert await store.leases.release(renewed) is not None
        again = await store.leases.acquire("job", "A", "300s")
        assert again is not None
        assert again.epoch == 2
        assert await store.leases.renew(first, "300s") is None
