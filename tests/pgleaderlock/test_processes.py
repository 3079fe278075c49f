"""Processes that compete for one lock on real PostgreSQL: killed, frozen, cut off, and handing over."""

from itertools import pairwise

import pytest

from fencehold.testing.proxy import ThreadedFaultProxy
from tests.pgleaderlock.candidates import Candidate, address, asked, candidates, holders, through

HOUR = ("--retry", "3600")
COUNTED = "CREATE TABLE counted (place bigserial PRIMARY KEY, holder text NOT NULL, epoch bigint NOT NULL)"


def assert_one_at_a_time(everybody: list[Candidate]) -> None:
    terms = sorted((begun, last, one.holder) for one in everybody for begun, last in one.terms())
    for (_, last, who), (begun, _, other) in pairwise(terms):
        assert last <= begun, f"{who} led at {last} while {other} led since {begun}"


def assert_counted_by_one_at_a_time(dsn: str) -> None:
    rows = asked(dsn, "SELECT ARRAY[holder, epoch::text] FROM counted ORDER BY place")
    epochs = [int(epoch) for _, epoch in rows]
    assert epochs == sorted(epochs), "a write under an older epoch came after one under a newer"
    assert len({epoch for _, epoch in rows}) == len({(who, epoch) for who, epoch in rows})


@pytest.mark.parametrize("count", [2, 8])
def test_of_competing_processes_exactly_one_leads_at_any_time(postgres_url: str, count: int) -> None:
    asked(postgres_url, COUNTED)
    with candidates(postgres_url) as start:
        everybody = [start(f"c{i}", "--fencing", "job", "--steady") for i in range(count)]
        for one in everybody:
            one.wait_for("started")
        for turn in range(6):
            leader = next_leader(everybody, postgres_url)
            leader.wait_for("wrote")
            assert len(holders(postgres_url)) <= 1
            if turn == 3 and count > 2:
                leader.kill()
                everybody_left = [one for one in everybody if one.killed_s is None]
                assert len(everybody_left) == count - 1
            else:
                leader.say("step_down")
        for one in everybody:
            if one.killed_s is None:
                one.stop()
        assert holders(postgres_url) == []
        assert_one_at_a_time(everybody)
    assert_counted_by_one_at_a_time(postgres_url)


def next_leader(everybody: list[Candidate], dsn: str) -> Candidate:
    """The one whose last word on it is that it leads; waited for by asking all of them."""
    while True:
        for one in everybody:
            if one.killed_s is None:
                one.say("look")
                if one.wait_for("looked")["is_leader"]:
                    return one


@pytest.mark.fault("kill", "lock")
def test_a_killed_leader_is_followed_at_the_next_retry(postgres_url: str) -> None:
    with candidates(postgres_url) as start:
        first = start("first")
        first.wait_for("acquired")
        second = start("second")
        second.wait_for("acquire_failed")
        first.kill()
        second.wait_for("leads")
        assert len(holders(postgres_url)) == 1


def test_a_clean_step_down_hands_over_by_notification(postgres_url: str) -> None:
    with candidates(postgres_url) as start:
        first = start("first", *HOUR)
        first.wait_for("acquired")
        second = start("second", *HOUR)
        second.wait_for("acquire_failed")
        first.say("step_down")
        first.wait_for("released")
        second.wait_for("acquired")  # the next retry would be in an hour
        second.say("step_down")
        second.wait_for("released")
        first.say("look")
        assert first.wait_for("looked")["is_leader"] is False  # it yields for one retry, here an hour


@pytest.mark.fault("freeze", "lock")
def test_a_frozen_process_loses_the_lock_and_knows_it_on_its_first_look(postgres_url: str) -> None:
    with candidates(postgres_url) as start:
        first = start("first")
        first.wait_for("acquired")
        second = start("second")
        second.wait_for("acquire_failed")
        first.freeze()
        won = second.wait_for("leads")
        assert len(holders(postgres_url)) == 1
        first.thaw()
        over = first.wait_for("follows")
        assert over["last_s"] < won["at_s"]
        first.say("look")
        assert first.wait_for("looked")["is_leader"] is False
        for one in (second, first):
            one.stop()
        assert "lost" in [told["event"] for told in first.all_told()]
        assert_one_at_a_time([first, second])


@pytest.mark.fault("frozen-tcp", "lock")
def test_a_leader_on_a_frozen_network_steps_back_before_another_leads(postgres_url: str) -> None:
    with ThreadedFaultProxy(*address(postgres_url)) as proxy, candidates(postgres_url) as start:
        first = start("first", at=through(postgres_url, proxy.port))
        first.wait_for("acquired")
        second = start("second")
        second.wait_for("acquire_failed")
        proxy.freeze()
        over, won = first.wait_for("follows"), second.wait_for("leads")
        assert over["at_s"] < won["at_s"]
        assert len(holders(postgres_url)) == 1


def test_a_stale_leaders_write_is_refused_and_epochs_rise(postgres_url: str) -> None:
    asked(postgres_url, COUNTED)
    with candidates(postgres_url) as start:
        first = start("first", "--fencing", "job", "--steady")
        epoch = first.wait_for("acquired")["epoch"]
        first.wait_for("wrote", epoch=epoch)
        second = start("second", "--fencing", "job", "--steady")
        second.wait_for("started")
        first.freeze()
        later = second.wait_for("acquired")["epoch"]
        assert later > epoch
        second.wait_for("wrote", epoch=later)
        first.thaw()
        first.say("write")
        first.wait_for("refused", epoch=epoch)
    assert_counted_by_one_at_a_time(postgres_url)
