"""A fencing epoch beside the lock, on a real server: it rises with every leadership and refuses whoever came before."""

from __future__ import annotations

import contextlib

import pytest

from fencehold.model.errors import LeaseLost
from mssqlleaderlock import FixedInterval
from tests.mssqlleaderlock.onlooker import executed, is_free, new_name, place, until, until_free, watched
from tests.servers.sqlserver import open_connection

pytestmark = pytest.mark.limit(120)

JOB = "CREATE TABLE job (id int PRIMARY KEY, state nvarchar(20))"


async def test_epochs_rise_and_a_stale_term_writes_nothing(mssql_url: str) -> None:
    executed(mssql_url, JOB)
    one = watched(mssql_url, new_name(), fencing_name="job")
    await one.lead()  # the lease table is made on the way
    first = one.lock.term
    assert first is not None
    async with first.transaction() as tx:
        await tx.execute("INSERT INTO job VALUES (1, 'first')")
    await one.lock.step_down()
    assert not first.is_valid
    with pytest.raises(LeaseLost):
        async with first.transaction() as tx:
            await tx.execute("UPDATE job SET state = 'stale'")
    await one.reach("acquired")
    assert one.lock.term is not None
    assert one.lock.term.epoch == first.epoch + 1
    await one.lock.shutdown()
    assert one.lock.term is None
    assert executed(mssql_url, "SELECT state FROM job") == [("first",)]


async def test_a_new_leader_waits_for_the_old_ones_open_transaction(mssql_url: str) -> None:
    executed(mssql_url, JOB)
    async with place(mssql_url, fencing_name="job", health_interval_s=5, auto_reacquire=False) as one:
        two = one.rival(fencing_name="job", health_interval_s=5)
        await one.lead()
        term = one.lock.term
        assert term is not None
        with contextlib.closing(open_connection(mssql_url)) as mine:
            mine.autocommit = False
            await term.fence(mine)
            mine.cursor().execute("INSERT INTO job VALUES (1, 'first')")
            one.proxy.cut()
            await one.reach("lost")
            await until_free(mssql_url, one.name)
            await two.lock.start()
            await until(lambda: not is_free(mssql_url, one.name))
            assert not two.lock.is_leader  # it has the lock, but not the epoch
            mine.commit()
        await two.reach("acquired")
        assert two.lock.term is not None
        assert two.lock.term.epoch > term.epoch
        assert executed(mssql_url, "SELECT state FROM job") == [("first",)]
        await two.lock.shutdown()


async def test_if_another_led_within_the_grace_the_loss_is_told_after_all(mssql_url: str) -> None:
    async with place(mssql_url, reconnect_grace_s=90, fencing_name="job") as one:
        await one.lead()
        first = one.lock.term
        assert first is not None
        one.proxy.cut()
        await one.reach("leader>reconnecting")
        two = one.rival(fencing_name="job", retry_strategy=FixedInterval(0.5))
        await two.lead()
        await two.lock.shutdown()
        one.proxy.heal()
        await one.reach("acquired")
        assert [told for told in one.heard if told != "error"] == [
            "leader>reconnecting", "reconnecting>leader", "lost", "acquired",
        ]  # fmt: skip
        assert one.lock.term is not None
        assert one.lock.term.epoch == first.epoch + 2
        assert not first.is_valid


async def test_an_epoch_that_another_raised_ends_the_leadership(mssql_url: str) -> None:
    async with place(mssql_url, fencing_name="job", health_interval_s=5, retry_strategy=FixedInterval(3600)) as one:
        await one.lead()
        executed(mssql_url, "UPDATE fencehold_leases SET lease_epoch = lease_epoch + 1")
        await one.reach("error")
        assert "the fencing epoch was taken over" in str(one.errors[0])
        assert one.heard[:2] == ["leader>follower", "lost"]
