"""Spec 002, table 3.3, on real PostgreSQL behind a network that breaks on command: every row that can be reached."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from fencehold.testing.proxy import Fault, FaultProxy
from pgleaderlock import FixedInterval, LeaderLock, LockState
from tests.pgleaderlock.candidates import address, asked, holders, through, until_held, until_probed
from tests.pgleaderlock.heard import Heard
from tests.servers.limits import stretched

HEALTH_S = 0.3


class Place(Heard[LeaderLock]):
    """One lock whose connection runs through a proxy."""

    def __init__(self, dsn: str, proxy: FaultProxy, **options: Any) -> None:
        self.dsn, self.proxy = dsn, proxy
        options.setdefault("retry_strategy", FixedInterval(0.05))
        options.setdefault("health_interval_s", HEALTH_S)
        super().__init__(LeaderLock(through(dsn, proxy.port), 1, 100, **options))

    def rival(self, **options: Any) -> LeaderLock:
        """A lock with the same keys, on a network of its own."""
        return LeaderLock(self.dsn, 1, 100, retry_strategy=FixedInterval(0.05), health_interval_s=HEALTH_S, **options)


@asynccontextmanager
async def place(dsn: str, **options: Any) -> AsyncIterator[Place]:
    async with FaultProxy(*address(dsn)) as proxy:
        one = Place(dsn, proxy, **options)
        try:
            yield one
        finally:
            await one.lock.shutdown(5)


async def test_rows_1_2_4_8_10_16_from_start_to_a_clean_stop(postgres_url: str) -> None:
    async with place(postgres_url) as one:
        await one.lock.start()
        await one.reach("acquired")
        pid = holders(postgres_url)
        await until_probed(postgres_url, pid[0])
        assert holders(postgres_url) == pid
        await one.lock.shutdown()
        assert one.heard == [
            "stopped>follower", "follower>acquiring", "acquiring>leader", "acquired",
            "leader>releasing", "releasing>stopped", "released", "stopped",
        ]  # fmt: skip
        assert holders(postgres_url) == []


@pytest.mark.fault("shutdown", "lock")
async def test_rows_3_and_5_a_refused_follower_keeps_trying_until_stopped(postgres_url: str) -> None:
    async with place(postgres_url) as one, one.rival() as rival:
        assert await rival.wait_for_leadership(10)
        await one.lock.start()
        await one.reach("acquire_failed", times=3)
        assert len(holders(postgres_url)) == 1
        await one.lock.shutdown()
        assert "acquired" not in one.heard
        assert one.heard[-1] == "stopped"
        assert rival.is_leader


@pytest.mark.parametrize("again", [True, False])
async def test_row_6_a_server_that_cannot_be_reached_is_an_error(postgres_url: str, again: bool) -> None:
    async with place(postgres_url, auto_reacquire=again) as one:
        one.proxy.cut()
        await one.lock.start()
        await one.reach("error")
        assert "lost" not in one.heard
        one.proxy.heal()
        if again:
            await one.reach("acquired")
        else:
            assert (await one.end())[-3:] == ["acquiring>stopped", "error", "stopped"]


@pytest.mark.fault("shutdown", "lock")
async def test_row_7_a_stop_inside_an_attempt_leaves_no_lock_and_no_session(postgres_url: str) -> None:
    async with place(postgres_url, health_interval_s=60) as one:
        trip = one.proxy.when_seen(b"pg_try_advisory_lock", Fault.DROP_ANSWERS)
        await one.lock.start()
        await trip.wait(10)
        await until_held(postgres_url, 1)  # locked, and the answer will never come
        await one.lock.shutdown()
        assert one.heard[-2:] == ["acquiring>stopped", "stopped"]
        await until_held(postgres_url, 0)
        assert sessions(postgres_url) == 0


def sessions(dsn: str) -> int:
    name = "pgleaderlock"
    return int(asked(dsn, "SELECT count(*) FROM pg_stat_activity WHERE application_name = %s", name)[0])


@pytest.mark.fault("reset", "lock")
@pytest.mark.parametrize("again", [True, False])
async def test_row_9_a_cut_network_without_grace_is_a_loss_at_once(postgres_url: str, again: bool) -> None:
    async with place(postgres_url, auto_reacquire=again, health_interval_s=600) as one:
        await one.lead()
        one.proxy.cut()
        await one.reach("error")  # no probe was due for ten minutes: the closed socket is noticed
        assert one.heard[:3] == [f"leader>{'follower' if again else 'stopped'}", "lost", "error"]
        assert not one.lock.is_leader
        one.proxy.heal()
        if again:
            await one.reach("acquired")


async def test_row_9_with_grace_leadership_is_doubted_but_not_lost(postgres_url: str) -> None:
    async with place(postgres_url, reconnect_grace_s=60) as one:
        await one.lead()
        one.proxy.cut()
        await one.reach("error")
        assert one.heard == ["leader>reconnecting", "error"]
        assert (one.lock.state, one.lock.is_leader) == (LockState.RECONNECTING, False)


async def test_rows_11_and_16_a_step_down_frees_the_lock_and_follows_on(postgres_url: str) -> None:
    async with place(postgres_url, retry_strategy=FixedInterval(3600)) as one:
        await one.lead()
        await one.lock.step_down()
        assert holders(postgres_url) == []
        assert one.lock.state is LockState.FOLLOWER
        await one.reach("released")


async def test_row_11_a_step_down_while_a_probe_is_under_way_keeps_the_connection(postgres_url: str) -> None:
    interval_s = stretched(1.0)  # a probe that a busy machine delays for longer would be a loss
    async with place(postgres_url, retry_strategy=FixedInterval(3600), health_interval_s=interval_s) as one:
        await one.lead()
        pid = holders(postgres_url)[0]
        one.proxy.delay(0.3)
        await until_probed(postgres_url, pid)  # its answer is on the way
        await one.lock.step_down()
        await one.reach("released")
        assert one.heard == ["leader>releasing", "releasing>follower", "released"]
        assert asked(postgres_url, "SELECT pid FROM pg_stat_activity WHERE pid = %s", pid) == [pid]


async def test_row_12_undisturbed_within_the_grace_nothing_is_told(postgres_url: str) -> None:
    async with place(postgres_url, reconnect_grace_s=60) as one:
        await one.lead()
        pid = holders(postgres_url)
        one.proxy.cut()
        await one.reach("leader>reconnecting")
        one.proxy.heal()
        await one.reach("reconnecting>leader")
        assert holders(postgres_url) != pid
        assert one.lock.is_leader
        assert not {"lost", "acquired"} & set(one.heard)


async def test_row_12_regained_within_the_grace_the_term_goes_on_under_its_epoch(postgres_url: str) -> None:
    asked(postgres_url, "CREATE TABLE job (state text)")
    async with place(postgres_url, reconnect_grace_s=60, fencing_name="job", health_interval_s=2) as one:
        await one.lead()
        term = one.lock.term
        assert term is not None
        one.proxy.cut()
        await one.reach("leader>reconnecting")
        assert not term.is_valid
        one.proxy.heal()
        await one.reach("reconnecting>leader")
        assert not {"lost", "acquired"} & set(one.heard)
        assert one.lock.term is not None
        assert (one.lock.term.epoch, term.is_valid) == (term.epoch, True)
        async with term.transaction() as tx:
            await tx.execute("INSERT INTO job VALUES ('done')")
    assert asked(postgres_url, "SELECT state FROM job") == ["done"]


async def test_row_12_a_term_that_is_refused_after_the_grace_is_never_silent(postgres_url: str) -> None:
    async with place(postgres_url, reconnect_grace_s=60, fencing_name="job", health_interval_s=2) as one:
        await one.lead()
        first = one.lock.term
        assert first is not None
        one.proxy.cut()
        await one.reach("leader>reconnecting")
        asked(postgres_url, "UPDATE fencehold_leases SET expires_at = now() RETURNING 1")  # as after 10 s
        one.proxy.heal()
        await one.reach("acquired")
        assert [told for told in one.heard if told in ("lost", "acquired")] == ["lost", "acquired"]
        assert one.lock.term is not None
        assert one.lock.term.epoch == first.epoch + 1
        assert not first.is_valid


@pytest.mark.parametrize("grace_s", [None, 0.2])
async def test_a_loss_that_was_told_is_followed_by_a_new_epoch(postgres_url: str, grace_s: float | None) -> None:
    options = {"reconnect_grace_s": grace_s, "fencing_name": "job", "health_interval_s": 2}
    async with place(postgres_url, **options) as one:
        await one.lead()
        first = one.lock.term
        assert first is not None
        one.proxy.cut()
        await one.reach("lost")
        one.proxy.heal()
        await one.reach("acquired")
        assert one.lock.term is not None
        assert one.lock.term.epoch == first.epoch + 1  # although the row was ours, and had not lapsed
        assert not first.is_valid


async def test_row_12_if_another_led_meanwhile_the_loss_is_told_after_all(postgres_url: str) -> None:
    async with place(postgres_url, reconnect_grace_s=60, fencing_name="job") as one:
        await one.lead()
        assert one.lock.term is not None
        first = one.lock.term
        one.proxy.cut()
        await one.reach("leader>reconnecting")
        async with one.rival(fencing_name="job") as rival:
            assert await rival.wait_for_leadership(10)
        one.proxy.heal()
        await one.reach("acquired")
        assert [told for told in one.heard if told != "error"] == [
            "leader>reconnecting", "reconnecting>leader", "lost", "acquired",
        ]  # fmt: skip
        assert one.lock.term is not None
        assert one.lock.term.epoch == first.epoch + 2
        assert not first.is_valid


@pytest.mark.parametrize("again", [True, False])
async def test_row_13_taken_by_another_within_the_grace(postgres_url: str, again: bool) -> None:
    async with place(postgres_url, reconnect_grace_s=60, auto_reacquire=again) as one:
        await one.lead()
        one.proxy.cut()
        await one.reach("leader>reconnecting")
        async with one.rival() as rival:
            assert await rival.wait_for_leadership(10)
            one.proxy.heal()
            await one.reach("lost")
            assert f"reconnecting>{'follower' if again else 'stopped'}" in one.heard


@pytest.mark.parametrize("fault", ["cut", "freeze"])
async def test_row_14_the_grace_ends(postgres_url: str, fault: str) -> None:
    async with place(postgres_url, reconnect_grace_s=0.5) as one:
        await one.lead()
        getattr(one.proxy, fault)()
        await one.reach("lost")
        assert one.heard[:4] == ["leader>reconnecting", "error", "reconnecting>follower", "lost"]
        one.proxy.heal()
        await one.reach("acquired")


async def test_row_14_an_attempt_cut_off_by_the_end_of_the_grace_leaves_no_lock(postgres_url: str) -> None:
    async with place(postgres_url, reconnect_grace_s=0.5, health_interval_s=60) as one:
        await one.lead()
        one.proxy.close_all()
        trip = one.proxy.when_seen(b"pg_try_advisory_lock", Fault.DROP_ANSWERS)
        await trip.wait(10)
        await one.reach("lost")
        one.proxy.heal()
        await one.reach("acquired")
        await one.lock.step_down()
        assert holders(postgres_url) == []


@pytest.mark.fault("shutdown", "lock")
async def test_row_15_a_stop_within_the_grace(postgres_url: str) -> None:
    async with place(postgres_url, reconnect_grace_s=60) as one:
        await one.lead()
        one.proxy.cut()
        await one.reach("leader>reconnecting")
        await one.lock.shutdown()
        assert one.heard[-2:] == ["reconnecting>stopped", "stopped"]


async def test_row_17_a_release_that_breaks_stops_and_the_lock_is_free(postgres_url: str) -> None:
    async with place(postgres_url) as one:
        await one.lead()
        one.proxy.when_seen(b"pg_advisory_unlock", Fault.CUT)
        await one.lock.step_down()
        assert await one.end() == ["leader>releasing", "releasing>stopped", "error", "stopped"]
        await until_held(postgres_url, 0)


@pytest.mark.parametrize("verb", ["step_down", "shutdown"])
async def test_on_frozen_tcp_a_leader_that_gives_up_is_told_lost_not_released(postgres_url: str, verb: str) -> None:
    async with place(postgres_url, health_interval_s=60, retry_strategy=FixedInterval(3600)) as one:
        await one.lead()
        one.proxy.freeze()
        await getattr(one.lock, verb)(timeout_s=0.5)
        assert {"lost", "error"} <= set(one.heard)
        assert "released" not in one.heard
        assert len(holders(postgres_url)) == 1  # the server has heard of nothing


async def test_a_release_that_hangs_is_cut_off_and_the_lock_is_free(postgres_url: str) -> None:
    async with place(postgres_url, health_interval_s=60, retry_strategy=FixedInterval(3600)) as one:
        await one.lead()
        one.proxy.drop_requests()
        await one.lock.step_down(timeout_s=0.2)
        assert one.lock.state is LockState.FOLLOWER
        await until_held(postgres_url, 0)
