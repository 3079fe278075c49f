"""The tests that spec 000 says must exist, and what it says can be observed, with real instances on real databases."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import fencehold
from tests.servers.postgres import PostgresServer
from tests.submission_manager.instance.fleet import HOLD, LEASE, Fleet, Instance, a_fleet, until
from tests.submission_manager.service_url import service_url


@pytest.fixture(params=["sqlite", "postgres", "sqlserver"])
def url(request: pytest.FixtureRequest) -> str:
    return service_url(request)


async def called(fleet: Fleet, key: str) -> None:
    async def is_called() -> bool:
        return key in fleet.gateway.calls

    await until(is_called, f"the gateway was never called for {key}: {fleet.gateway.calls}")


async def renewed(instance: Instance) -> None:
    async def is_renewed() -> bool:
        return "leader_renewed" in instance.log()

    await until(is_renewed, f"never renewed: {instance.log()}")


def errors(history: dict[str, Any]) -> list[str | None]:
    return [attempt.get("error") for attempt in history["attempts"]]


async def stolen(fleet: Fleet) -> None:
    """Another has the lease from now on, and the leader has not heard of it."""
    await fleet.rows(
        "UPDATE submission_manager_leases SET holder_id = 'thief', lease_epoch = lease_epoch + 1"
        f" WHERE lease_name = '{LEASE}'"
    )


async def given_up(fleet: Fleet) -> None:
    """By the thief: it expires."""
    await fleet.rows(f"UPDATE submission_manager_leases SET expires_at = renewed_at WHERE lease_name = '{LEASE}'")


async def test_1_single_leader_on_concurrent_start_and_only_it_executes(url: str, tmp_path: Path) -> None:
    async with a_fleet(url, tmp_path) as fleet:
        crowd = await fleet.start("A", "B", "C", SM_LEASE_DURATION="60s", SM_RENEW_INTERVAL="20s")
        leader, followers = await fleet.leader()
        ids = [f"x{number}" for number in range(30)]
        for number, intent_id in enumerate(ids):
            await crowd[number % 3].submit(intent_id)
        await followers[0].until_over(*ids)
        await leader.until_counted("submission_attempts_total", 30)
        assert [await one.counted("submission_attempts_total") for one in followers] == [0, 0]
        assert sorted(fleet.gateway.calls) == sorted(f"{intent_id}/1" for intent_id in ids)
        assert (await fleet.lease())[:2] == (leader.holder_id, 1)


@pytest.mark.fault("kill", "service")
@pytest.mark.fault("freeze", "service")
async def test_2_failover_after_expiry_of_a_leader_frozen_or_killed(url: str, tmp_path: Path) -> None:
    """Each with an attempt at the gateway, whose outcome nobody knows; it is counted, and the next leader goes on."""
    # A disk that stands still for seconds must not end a third term: its attempts are counted.
    patient = {} if "mssql" in url else {"SM_LEASE_DURATION": "6s", "SM_RENEW_INTERVAL": "1s"}
    async with a_fleet(url, tmp_path) as fleet:
        (a,) = await fleet.start("A", **patient)
        await a.until_leading()
        (b,) = await fleet.start("B", **patient)
        await a.submit("frozen", HOLD)
        await called(fleet, "frozen/1")
        await renewed(a)
        a.freeze(url)
        left_behind = await fleet.lease()
        await called(fleet, "frozen/2")
        taken = await fleet.lease()
        assert (left_behind[:2], taken[:2]) == (("A", 1), ("B", 2))
        assert taken[2] >= left_behind[3], "taken before it had expired, by the database's clock"
        a.thaw()
        await a.until_following()
        assert all(event in a.log() for event in ("leader_acquired", "leader_renewed", "leader_lost"))
        b.kill()
        fleet.gateway.answers_held.set()
        await a.submit("fresh")
        frozen, fresh = await a.until_over("frozen", "fresh")
        assert (await fleet.lease())[:2] == ("A", 3)
        assert errors(frozen) == ["outcome unknown", "outcome unknown", None]
        assert errors(fresh) == [None]
        assert sorted(fleet.gateway.calls) == ["fresh/1", "frozen/1", "frozen/2", "frozen/3"]


async def test_3_no_execution_without_leadership(url: str, tmp_path: Path) -> None:
    async with a_fleet(url, tmp_path) as fleet:
        async with fencehold.connect(url, table="submission_manager_leases") as store:
            await store.init()
            lease = await store.leases.acquire(LEASE, "outsider", "60s")
            assert lease is not None
            (a,) = await fleet.start("A")
            answers = [await a.submit("x", wait_s=1), await a.submit("y")]
            assert [answer["status"] for answer in answers] == ["pending", "pending"]
            assert (await a.get("/leaderz")).status_code == 503
            assert (await a.get("/readyz")).text.startswith("mode=follower holder_id=A")
            assert fleet.gateway.calls == []
            assert await a.counted("submission_schedule_rebuild_seconds_count") == 0
            await store.leases.release(lease)
        await a.until_over("x", "y")
        assert (await a.get("/readyz")).text.startswith("mode=leader holder_id=A")


async def test_4_leader_stops_executing_immediately_on_lease_loss(url: str, tmp_path: Path) -> None:
    """It does not know yet: the fence refuses the record of a call under way, and in a second term the next start."""
    async with a_fleet(url, tmp_path) as fleet:
        (a,) = await fleet.start("A", SM_LEASE_DURATION="60s", SM_RENEW_INTERVAL="20s")
        await a.submit("held", HOLD)
        await called(fleet, "held/1")
        await stolen(fleet)
        assert await a.leads()
        fleet.gateway.answers_held.set()
        await a.until_following()
        history = await a.history("held")
        assert (history["intent"]["status"], history["attempts"]) == ("pending", [])
        await a.until_counted("submission_fenced_out_writes_total", 1)
        assert fleet.gateway.calls == ["held/1"]

        await given_up(fleet)
        (held,) = await a.until_over("held")
        assert errors(held) == ["outcome unknown", None]
        await stolen(fleet)
        await a.submit("after")
        await a.until_following()
        assert (await a.submit("after", wait_s=1))["status"] == "pending"
        assert fleet.gateway.calls == ["held/1", "held/2"]
        marks = await fleet.rows("SELECT attempt_epoch FROM submission_intents WHERE intent_id = 'after'")
        assert marks == [(None,)]


async def test_5_leader_picks_up_follower_submitted_intents_and_hands_over_on_a_clean_stop(
    url: str, tmp_path: Path
) -> None:
    async with a_fleet(url, tmp_path) as fleet:
        await fleet.start("A", "B", SM_LEASE_DURATION="300s", SM_RENEW_INTERVAL="100s")
        leader, (follower,) = await fleet.leader()
        await follower.submit("first")
        await follower.until_over("first")
        ids = [f"x{number}" for number in range(10)]
        leader.freeze(url)
        for intent_id in ids:
            await follower.submit(intent_id)
        await same_instant(fleet)
        leader.thaw()
        await follower.until_over(*ids)
        await leader.until_counted("submission_attempts_total", 11)
        await follower.submit("held", HOLD)
        await called(fleet, "held/1")
        fleet.gateway.answers_held.set()
        await leader.stop()
        await follower.until_leading()
        await follower.submit("next")
        held, after = await follower.until_over("held", "next")
        assert (errors(held), errors(after)) == ([None], [None])
        assert (await fleet.lease())[1] == 2


async def same_instant(fleet: Fleet) -> None:
    """As if all that is pending had been modified at the same instant."""
    await fleet.rows(
        "UPDATE submission_intents SET last_modified_at = (SELECT max(last_modified_at) FROM submission_intents)"
        " WHERE status = 'pending'"
    )


@pytest.mark.fault("server-restart", "service", "postgres")
async def test_a_database_that_goes_away_ends_leadership_and_one_that_comes_back_loses_nothing(
    own_postgres: PostgresServer, tmp_path: Path
) -> None:
    async with a_fleet(own_postgres.dsn(), tmp_path) as fleet:
        await fleet.start("A", "B", SM_LEASE_DURATION="5s", SM_RENEW_INTERVAL="2s")
        leader, (follower,) = await fleet.leader()
        await follower.submit("held", HOLD)
        await called(fleet, "held/1")
        own_postgres.stop()
        await leader.until_following()
        fleet.gateway.answers_held.set()
        own_postgres.start()
        await fleet.leader()
        await follower.submit("fresh")
        held, fresh = await follower.until_over("held", "fresh")
        assert errors(held) == ["outcome unknown", None]
        assert errors(fresh) == [None]
        assert sorted(fleet.gateway.calls) == ["fresh/1", "held/1", "held/2"]
