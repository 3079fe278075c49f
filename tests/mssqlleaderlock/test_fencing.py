"""A fencing epoch beside the lock, on a real server: it rises with every leadership and refuses whoever came before."""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from fencehold.backends.sqlserver.address import Address
from fencehold.model.errors import LeaseLost
from mssqlleaderlock import FixedInterval, LockError
from mssqlleaderlock.companion import WAIT_PART, Companion
from mssqlleaderlock.session import open_session
from tests.mssqlleaderlock.onlooker import executed, new_name, place, watched
from tests.servers.sqlserver import open_connection

pytestmark = pytest.mark.limit(120)

LEASE_S = 25.0
SEIZE_LIMIT_S = 20.0
JOB = "CREATE TABLE job (id int PRIMARY KEY, state nvarchar(20))"


async def test_epochs_rise_and_a_stale_term_writes_nothing(mssql_url: str) -> None:
    executed(mssql_url, JOB)
    one = watched(mssql_url, new_name(), fencing_name="job", health_interval_s=5)
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


async def test_a_name_is_the_same_in_every_statement(mssql_url: str) -> None:
    one = watched(mssql_url, new_name(), fencing_name='say "hi", 100%25 \\ 🎉', health_interval_s=5)
    await one.lead()
    assert one.lock.term is not None
    assert one.lock.term.epoch == 1
    await one.lock.shutdown()


@asynccontextmanager
async def seizing(url: str) -> AsyncIterator[Callable[[], Awaitable[int]]]:
    """What the next leader does with the epoch, on a session of its own."""
    address = Address.of(url)
    companion = Companion(address, "job", "fencehold_leases")
    session = await open_session(address, new_name(), 30)
    try:
        yield lambda: companion.seize(session, LEASE_S, SEIZE_LIMIT_S)
    finally:
        await session.close()


@pytest.mark.fault("slow", "lock")
async def test_the_epoch_waits_for_a_transaction_that_the_old_leader_fenced(mssql_url: str) -> None:
    executed(mssql_url, JOB)
    one = watched(mssql_url, new_name(), fencing_name="job", health_interval_s=10)
    await one.lead()
    term = one.lock.term
    assert term is not None
    async with seizing(mssql_url) as seize:
        with contextlib.closing(open_connection(mssql_url)) as mine:
            mine.autocommit = False
            await term.fence(mine)
            mine.cursor().execute("INSERT INTO job VALUES (1, 'first')")
            with pytest.raises(LockError, match="fenced transaction is open"):
                await seize()
            mine.commit()
        assert await seize() == term.epoch + 1
    assert executed(mssql_url, "SELECT state FROM job") == [("first",)]
    await one.lock.shutdown()


async def test_a_transaction_of_the_old_term_holds_the_epoch_up_for_a_while_and_is_then_refused(mssql_url: str) -> None:
    executed(mssql_url, JOB)
    one = watched(mssql_url, new_name(), fencing_name="job", health_interval_s=10)
    async with seizing(mssql_url) as seize:
        await seize()  # what a session does for the first time can take long, and would be taken for a wait
        await one.lead()
        term = one.lock.term
        assert term is not None
        stale = term.transaction()
        tx = await stale.__aenter__()
        await tx.execute("INSERT INTO job VALUES (1, 'stale')")
        began_s = time.monotonic()
        assert await seize() == term.epoch + 1
        assert time.monotonic() - began_s > SEIZE_LIMIT_S * WAIT_PART
        with pytest.raises(LeaseLost):
            await stale.__aexit__(None, None, None)
    assert executed(mssql_url, "SELECT state FROM job") == []
    await one.lock.shutdown()


async def test_if_another_led_within_the_grace_the_loss_is_told_after_all(mssql_url: str) -> None:
    async with place(mssql_url, reconnect_grace_s=90, fencing_name="job", health_interval_s=5) as one:
        await one.lead()
        first = one.lock.term
        assert first is not None
        one.proxy.cut()
        await one.reach("leader>reconnecting")
        two = one.rival(fencing_name="job", health_interval_s=5, retry_strategy=FixedInterval(0.5))
        await two.lead()
        await two.lock.shutdown()
        one.proxy.heal()
        await one.reach("acquired")
        assert [told for told in one.heard if told != "error"] == [
            "leader>reconnecting", "reconnecting>leader", "lost", "acquired",
        ]  # fmt: skip
        assert one.lock.term is not None
        assert one.lock.term.epoch >= first.epoch + 2  # an attempt whose answer was late has raised it too
        assert not first.is_valid


async def test_an_epoch_that_another_raised_ends_the_leadership(mssql_url: str) -> None:
    async with place(mssql_url, fencing_name="job", health_interval_s=5, retry_strategy=FixedInterval(3600)) as one:
        await one.lead()
        executed(mssql_url, "UPDATE fencehold_leases SET lease_epoch = lease_epoch + 1")
        await one.reach("error")
        assert "the fencing epoch was taken over" in str(one.errors[0])
        assert one.heard[:2] == ["leader>follower", "lost"]
