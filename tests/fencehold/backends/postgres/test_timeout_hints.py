"""A statement that took too long: whose limit it was, and what held it up, are told as far as they are known."""

import psycopg
import pytest
from psycopg import errors as pg

import fencehold
from fencehold import Unavailable
from fencehold.backends.postgres import faults

TIMEOUT = "canceling statement due to statement timeout"


def test_outside_a_fence_a_limit_is_that_of_the_role():
    fault = faults.of_statement(pg.QueryCanceled(TIMEOUT))
    assert (fault.code, fault.hint) == ("canceled", faults.TIMEOUT_HINT)


def test_inside_a_fence_it_is_fenceholds_own_and_the_cause_most_likely_a_lock():
    fault = faults.of_fenced(pg.QueryCanceled(TIMEOUT), 7.5)
    assert (fault.code, "role" in fault.hint) == ("canceled", False)
    assert all(words in fault.hint for words in ("fencehold's own", "7.5 s", "a lock", "pg_blocking_pids(pid)"))


def test_what_an_operator_cancelled_blames_no_limit_at_all():
    error = pg.QueryCanceled("canceling statement due to user request")
    assert faults.of_statement(error).hint == faults.of_fenced(error, 1.0).hint == faults.CANCELED_HINT


async def test_a_fence_that_waits_for_a_locked_lease_says_who_can_be_asked(postgres_url):
    async with fencehold.connect(postgres_url) as store:
        await store.init()
        leader = store.leader("locked", lease="4s")
        await leader.start()
        assert await leader.wait_for_leadership(10)
        term = leader.term
        assert term is not None
        async with await psycopg.AsyncConnection.connect(postgres_url) as other:
            await other.execute("SELECT 1 FROM fencehold_leases FOR UPDATE")
            with pytest.raises(Unavailable) as caught:
                async with term.transaction():
                    pass
            await other.rollback()
        assert caught.value.code in ("locked", "canceled")  # of two limits of the same length
        assert "pg_blocking_pids(pid)" in caught.value.hint
        await leader.shutdown()
