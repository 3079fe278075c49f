"""Processes that compete for one lock on a real server: killed, frozen, cut off, and handing over."""

from __future__ import annotations

import pytest

from fencehold.testing.proxy import ThreadedFaultProxy
from tests.mssqlleaderlock.onlooker import executed, is_free, new_name
from tests.pgleaderlock.candidates import address, candidates, through
from tests.pgleaderlock.test_processes import assert_one_at_a_time, next_leader

MODULE = "tests.mssqlleaderlock.candidate"
COUNTED = """
CREATE TABLE counted (place bigint IDENTITY PRIMARY KEY, holder nvarchar(64) NOT NULL, epoch bigint NOT NULL)"""
PACE = ("--health", "2", "--retry", "1")

pytestmark = pytest.mark.limit(240)


def test_of_competing_processes_exactly_one_leads_at_any_time(mssql_url: str) -> None:
    lock = ("--lock", new_name(), "--health", "5", "--retry", "1")
    executed(mssql_url, COUNTED)
    with candidates(mssql_url, MODULE) as start:
        everybody = [start(f"c{i}", *lock, "--fencing", "job", "--steady") for i in range(3)]
        for one in everybody:
            one.wait_for("started")
        for turn in range(3):
            leader = next_leader(everybody, mssql_url)
            leader.wait_for("wrote")
            if turn == 1:
                leader.kill()
            else:
                leader.say("step_down")
        for one in everybody:
            if one.killed_s is None:
                one.stop()
        assert_one_at_a_time(everybody)
    assert is_free(mssql_url, lock[1])
    rows = executed(mssql_url, "SELECT holder, epoch FROM counted ORDER BY place")
    epochs = [epoch for _, epoch in rows]
    assert epochs == sorted(epochs), "a write under an older epoch came after one under a newer"
    assert len(set(epochs)) == len(set(rows))


@pytest.mark.fault("kill", "lock")
def test_a_killed_leader_is_followed_at_the_next_retry(mssql_url: str) -> None:
    lock = ("--lock", new_name(), *PACE)
    with candidates(mssql_url, MODULE) as start:
        first = start("first", *lock)
        first.wait_for("acquired")
        second = start("second", *lock)
        second.wait_for("acquire_failed")
        first.kill()
        second.wait_for("leads")
        second.stop()


@pytest.mark.fault("freeze", "lock")
def test_while_a_leader_is_frozen_nobody_leads_and_thawed_it_knows_that_its_time_was_over(mssql_url: str) -> None:
    lock = ("--lock", new_name(), "--health", "1", "--retry", "1")
    with candidates(mssql_url, MODULE) as start:
        first = start("first", *lock)
        first.wait_for("leads")
        second = start("second", *lock)
        second.wait_for("acquire_failed")
        first.freeze()
        for _ in range(6):  # one a second: its own trust in itself is over by now; the server knows of nothing
            second.wait_for("acquire_failed")
        assert not is_free(mssql_url, lock[1])
        first.thaw()
        first.wait_for("follows")
        first.wait_for("lost")
        for one in (second, first):
            one.stop()
        assert_one_at_a_time([first, second])


@pytest.mark.fault("frozen-tcp", "lock")
def test_a_leader_that_is_cut_off_steps_back_before_another_leads(mssql_url: str) -> None:
    lock = ("--lock", new_name(), *PACE)
    with ThreadedFaultProxy(*address(mssql_url)) as proxy, candidates(mssql_url, MODULE) as start:
        first = start("first", *lock, at=through(mssql_url, proxy.port))
        first.wait_for("leads")
        second = start("second", *lock)
        second.wait_for("acquire_failed")
        proxy.freeze()
        over = first.wait_for("follows")
        proxy.cut()  # only now the server learns of it
        won = second.wait_for("leads")
        assert over["at_s"] < won["at_s"]
        second.stop()


def test_a_candidate_that_stops_leaves_the_lock_free_and_no_thread_behind(mssql_url: str) -> None:
    lock = ("--lock", new_name(), *PACE)
    with candidates(mssql_url, MODULE) as start:
        one = start("one", *lock)
        one.wait_for("acquired")
        one.stop()  # which asks for exit code 0
        assert [told["event"] for told in one.all_told()][-3:] == ["released", "stopped", "eof"]
    assert is_free(mssql_url, lock[1])
