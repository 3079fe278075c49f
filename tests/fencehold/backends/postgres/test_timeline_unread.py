"""A server that does not tell its timeline: epochs go on by one, with one warning; no acquire fails for it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import fencehold
from fencehold.model.election.places import Place
from fencehold.ports.checkup import State
from pgleaderlock import LeaderLock
from tests.fencehold.backends.postgres.places import run, scene_at
from tests.servers.roles import Role

ROLE = "plain_clerk"
FUNCTIONS = ["pg_walfile_name(pg_lsn)", "pg_current_wal_insert_lsn()", "pg_control_system()"]
GONE = "ALTER FUNCTION pg_catalog.{} RENAME TO gone"
# In the place of the server's own, since that one's body is not in the catalogue.
RAISES = """
CREATE FUNCTION pg_catalog.{} RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'not on this service' USING ERRCODE = '55000';
END $$
"""


def refused(url: str, function: str) -> None:
    run(url, f"REVOKE EXECUTE ON FUNCTION {function} FROM public")


def missing(url: str, function: str) -> None:
    run(url, GONE.format(function))


def raising(url: str, function: str) -> None:
    run(url, GONE.format(function))
    run(url, RAISES.format(function))


WAYS = {"refused": refused, "missing": missing, "raising": raising}


class Facts:
    def __init__(self) -> None:
        self.warnings: list[dict[str, Any]] = []

    def fact(self, event: str, **fields: Any) -> None:
        if event == "timeline_unread":
            self.warnings.append(fields)


@pytest.fixture
def clerk(postgres_url: str) -> Iterator[Role]:
    role = Role(postgres_url, ROLE)
    yield role
    role.drop()


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
@pytest.mark.parametrize("function", FUNCTIONS)
async def test_acquires_go_on_and_one_warning_says_why(
    clerk: Role, way: Callable[[str, str], None], function: str
) -> None:
    facts = Facts()
    async with scene_at(clerk.owner_url) as scene:
        await scene.acquire("job")
        scene.forge(Place(scene.here.timeline, scene.here.system))
    clerk.may_use_all_tables()
    way(clerk.owner_url, function)
    for epoch in (2, 3):
        async with fencehold.connect(clerk.url, facts=facts) as store:
            clerk.cut_off()  # it connects again, and warns no more
            lease = await store.leases.acquire("job", "bob", lease=30)
            assert lease is not None
            assert lease.epoch == epoch
            await store.leases.release(lease)
        [warning] = facts.warnings
        assert "does not tell its timeline" in warning["detail"]
        assert "GRANT EXECUTE" in warning["hint"]
        facts.warnings.clear()


async def test_what_was_known_of_the_last_grant_is_kept_until_it_can_be_read_again(clerk: Role) -> None:
    async with scene_at(clerk.owner_url) as scene:
        await scene.acquire("job")
        scene.forge(Place(-1, scene.here.system))
        clerk.may_use_all_tables()
        refused(clerk.owner_url, FUNCTIONS[0])
        async with fencehold.connect(clerk.url, facts=Facts()) as store:
            lease = await store.leases.acquire("job", "bob", lease=30)
            assert lease is not None
            assert scene.row("job") == (2, Place(-1, scene.here.system))
            await store.leases.release(lease)
        assert await scene.acquire("job") == 2_000_002, "the owner may read it"


async def test_doctor_says_so(clerk: Role) -> None:
    async with fencehold.connect(clerk.url) as store:
        [found] = [one for one in await store.checkup.conditions() if one.check == "epochs after a failover"]
        assert (found.state, found.detail[:10]) == (State.OK, "timeline 1")
        checks = [one.check for one in await store.checkup.conditions()]
        refused(clerk.owner_url, FUNCTIONS[1])
        conditions = await store.checkup.conditions()
        assert [one.check for one in conditions] == checks, "what is looked at after it was lost"
        [found] = [one for one in conditions if one.check == "epochs after a failover"]
        assert found.state is State.WARNING
        assert "permission denied for function pg_current_wal_insert_lsn" in found.detail
        assert FUNCTIONS[1] in found.hint


async def test_a_table_made_by_who_cannot_read_it_counts_by_one_and_records_it_later(postgres_url: str) -> None:
    missing(postgres_url, FUNCTIONS[0])
    async with fencehold.connect(postgres_url, facts=Facts()) as store:
        await store.init()
        lease = await store.leases.acquire("job", "ada", lease=30)
        assert lease is not None
        assert lease.epoch == 1
        await store.leases.release(lease)
    run(postgres_url, "ALTER FUNCTION pg_catalog.gone(pg_lsn) RENAME TO pg_walfile_name")
    async with scene_at(postgres_url) as scene:
        assert scene.row("job") == (1, Place(None, None))
        assert await scene.acquire("job") == 2
        assert scene.row("job") == (2, scene.here)


async def test_the_lock_leads_and_warns_once(postgres_url: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "pgleaderlock")
    missing(postgres_url, FUNCTIONS[0])
    async with LeaderLock(postgres_url, 1, 2, fencing_name="job") as lock:
        for _ in range(2):
            assert await lock.wait_for_leadership(20)
            await lock.step_down()
    assert [one.levelname for one in caplog.records if one.message.startswith("timeline_unread")] == ["WARNING"]
