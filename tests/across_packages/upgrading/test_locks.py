"""A new lock of pgleaderlock with a fencing epoch on the lease table of the first version: upgraded, if it may be."""

import uuid

import psycopg

from pgleaderlock import LeaderLock
from pgleaderlock.errors import HopelessError
from tests.across_packages.upgrading import old_tables
from tests.across_packages.upgrading.test_old_tables import OLD_INSERT, run
from tests.servers.roles import Role

LEASE_ID = "SELECT 1 FROM information_schema.columns WHERE table_name = 'fencehold_leases' AND column_name = 'lease_id'"


async def test_the_owners_lock_brings_an_old_lease_table_up_to_date_and_leads_on_from_its_epoch(
    postgres_url: str,
) -> None:
    old_tables.make(postgres_url)
    run(postgres_url, OLD_INSERT.format(name="job"))
    errors: list[Exception] = []
    lock = LeaderLock(postgres_url, 1, 2, fencing_name="job")
    lock.on_error(errors.append)
    async with lock:
        assert await lock.wait_for_leadership(30)
        assert lock.term is not None
        assert lock.term.epoch == 2
        async with lock.term.transaction() as tx:
            await tx.execute("CREATE TABLE written ()")
    assert errors == []
    assert len(run(postgres_url, LEASE_ID)) == 1


async def test_a_lock_that_may_not_change_an_old_lease_table_stops_and_says_who_must(postgres_url: str) -> None:
    old_tables.make(postgres_url)
    role = Role(postgres_url, f"clerk_{uuid.uuid4().hex}")
    role.may_use_all_tables()
    told: list[object] = []
    try:
        lock = LeaderLock(role.url, 1, 2, fencing_name="job")
        lock.on_error(told.append)
        lock.on_stopped(lambda: told.append("stopped"))
        await lock.start()
        assert await lock.wait_for_leadership(30) is False
        await lock.shutdown()
    finally:
        role.drop()
    error, stopped = told
    assert (type(error), stopped) == (HopelessError, "stopped")
    assert "owner" in str(error)
    assert run(postgres_url, LEASE_ID) == []
    with psycopg.connect(postgres_url) as pg:
        assert pg.execute("SELECT pg_try_advisory_lock(1, 2)").fetchone() == (True,)
