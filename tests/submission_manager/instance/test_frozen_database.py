"""A PostgreSQL that accepts and does not answer: instances stay in rotation, and say what is the matter."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx
import pytest

from tests.servers.postgres import PostgresServer, fresh_database
from tests.submission_manager.instance.fleet import HOLD, Fleet, Instance, a_fleet, until

PROBES = 16
PROBE_EVERY_S = 0.3  # 16 of them: longer than any memory of the last look
PROBE_TIMEOUT_S = 1.0


async def probes(one: Instance) -> list[int | str]:
    """Each on a connection of its own, as a kubelet asks."""
    answers: list[int | str] = []
    for _ in range(PROBES):
        async with httpx.AsyncClient(timeout=PROBE_TIMEOUT_S, trust_env=False) as client:
            try:
                answers.append((await client.get(f"{one.address}/readyz")).status_code)
            except httpx.TransportError as error:
                answers.append(type(error).__name__)
        await asyncio.sleep(PROBE_EVERY_S)
    return answers


@pytest.mark.fault("frozen-tcp", "service", "postgres")
@pytest.mark.long
@pytest.mark.limit(180)
async def test_every_probe_of_leader_and_follower_is_answered_200_while_the_database_is_frozen(
    own_postgres: PostgresServer, tmp_path: Path
) -> None:
    with fresh_database(own_postgres) as url:
        async with a_fleet(url, tmp_path) as fleet:
            await fleet.start("A", "B", SM_LEASE_DURATION="60s", SM_RENEW_INTERVAL="20s")
            leader, (follower,) = await fleet.leader()
            own_postgres.freeze()
            try:
                answers = await asyncio.gather(probes(leader), probes(follower))
                assert {answer for each in answers for answer in each} == {200}
                await until(lambda: says_silent(follower), "the follower does not say that the database is silent")
            finally:
                own_postgres.thaw()
            await until(lambda: says_silent(follower, False), "the follower has not seen that it answers again")
            await fleet.leader()


async def says_silent(one: Instance, is_silent: bool = True) -> bool:
    answer = await one.get("/readyz")
    assert answer.status_code == 200
    return ("database_silent_s=" in answer.text) is is_silent


@pytest.mark.fault("shutdown", "service", "postgres")
@pytest.mark.long
@pytest.mark.limit(180)
async def test_a_stop_while_the_database_is_frozen_names_the_attempts_without_a_record_and_does_not_exit_0(
    own_postgres: PostgresServer, tmp_path: Path
) -> None:
    with fresh_database(own_postgres) as url:
        async with a_fleet(url, tmp_path) as fleet:
            (one,) = await fleet.start("A", SM_LEASE_DURATION="15s", SM_RENEW_INTERVAL="5s")
            await one.until_leading()
            for number in range(3):
                await one.submit(f"x{number}", HOLD)
            await until(lambda: called(fleet, 3), "the gateway is not called")
            own_postgres.freeze()
            try:
                fleet.gateway.answers_held.set()
                assert await one.told_to_stop() == 1
            finally:
                own_postgres.thaw()
    (line,) = [line for line in one.log().splitlines() if "attempts_cut" in line]
    assert "attempts=3" in line
    assert all(f"x{number}/1: accepted" in line for number in range(3))


async def called(fleet: Fleet, count: int) -> bool:
    return len(fleet.gateway.calls) == count
