"""PostgreSQL counts epochs as the model says, wherever the grant before was made."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import psycopg
import pytest

import fencehold
from fencehold.backends.postgres import wire
from fencehold.backends.postgres.backend import PostgresBackend
from fencehold.model.election import places
from fencehold.model.election.places import EPOCH_JUMP, Place, next_epoch, recorded
from fencehold.model.election.rules import Ask, Lease
from fencehold.testing.conformance.suite import proves
from pgleaderlock.companion import Companion
from tests.fencehold.backends.postgres.places import LIVE, run, scene_at
from tests.fencehold.backends.postgres.test_durable_grants import OneConnection

TABLE, LIMIT_S = "fencehold_leases", 10.0
SQL = Path(places.__file__).parents[2] / "backends" / "postgres" / "sql"


@proves(*(f"places {rule.id}" for rule in places.RULES))
async def test_an_acquire_counts_on_from_wherever_the_last_grant_was_made(every_postgres_url: str) -> None:
    async with scene_at(every_postgres_url) as scene:
        epoch = await scene.acquire("job")
        for last in scene.all_places():
            scene.forge(last)
            expected = next_epoch(epoch, last, scene.here)
            assert await scene.acquire("job") == expected, last
            assert scene.row("job") == (expected, recorded(last, scene.here)), last
            epoch = expected


async def test_a_name_without_a_row_starts_at_1_only_where_the_table_was_made(every_postgres_url: str) -> None:
    async with scene_at(every_postgres_url) as scene:
        for number, origin in enumerate(scene.all_places()):
            scene.forge_origin(origin)
            expected = next_epoch(None, origin, scene.here)
            assert await scene.acquire(f"job {number}") == expected, origin
            assert scene.row(f"job {number}") == (expected, recorded(origin, scene.here)), origin


async def test_the_lock_seizes_its_fencing_epoch_by_the_same_rules(postgres_url: str) -> None:
    async with scene_at(postgres_url) as scene, await psycopg.AsyncConnection.connect(postgres_url) as pg:
        await pg.set_autocommit(True)
        lock = Companion(wire.conninfo(postgres_url), "job", TABLE)
        scene.forge_origin(Place(-1, scene.here.system))
        epoch = await lock.seize(OneConnection(pg), 30.0, LIMIT_S)
        assert epoch == 1 + 2 * EPOCH_JUMP
        for last in scene.all_places():
            scene.forge(last)
            expected = next_epoch(epoch, last, scene.here)
            epoch = await lock.seize(OneConnection(pg), 30.0, LIMIT_S)
            assert epoch == expected, last


class Promoted(OneConnection):
    """To a server that was promoted since: it tells another timeline."""

    async def run(self, statement: str, params: dict[str, Any], limit_s: float) -> tuple[Any, ...] | None:
        row = await super().run(statement, params, limit_s)
        return (*row[:1], "00000007", *row[2:]) if row and "pg_walfile_name" in statement else row


@pytest.mark.fault("failover-async", "lock")
async def test_the_lock_resumes_no_term_on_a_server_that_was_promoted_since(postgres_url: str) -> None:
    """The one before may have given the lock to another meanwhile, and that is lost."""
    async with scene_at(postgres_url), await psycopg.AsyncConnection.connect(postgres_url, autocommit=True) as pg:
        lock = Companion(wire.conninfo(postgres_url), "job", TABLE)
        epoch = await lock.seize(OneConnection(pg), 30.0, LIMIT_S)
        assert not await lock.resume(Promoted(pg), epoch, 30.0, LIMIT_S)
        assert await lock.resume(OneConnection(pg), epoch, 30.0, LIMIT_S)


async def test_a_lease_that_outlived_the_promotion_is_renewed_and_released_under_its_epoch(postgres_url: str) -> None:
    async with scene_at(postgres_url) as scene:
        lease = await scene.store.leases.acquire("job", "ada", lease=30)
        assert lease is not None
        before = Place(scene.here.timeline + 7, scene.here.system)  # type: ignore[operator]
        scene.forge(before, LIVE)
        for verb in (scene.store.leases.renew, scene.store.leases.release):
            after = await verb(lease)
            assert after is not None
            assert after.epoch == 1
            assert scene.row("job") == (1, before)


async def test_a_request_that_is_repeated_after_the_promotion_recognises_its_grant(postgres_url: str) -> None:
    backend = PostgresBackend(postgres_url, TABLE)
    ask = Ask("job", "ada", 30.0, "one and the same")
    async with scene_at(postgres_url) as scene:
        await backend.leases.acquire(ask, LIMIT_S)
        scene.forge(Place(7, 1), LIVE)
        again = await backend.leases.acquire(ask, LIMIT_S)
        assert isinstance(again, Lease)
        assert (again.epoch, scene.row("job")) == (1, (1, Place(7, 1)))
    await backend.close()


async def test_grants_of_the_version_before_jump_too(postgres_url: str) -> None:
    """It knows nothing of timelines, and adds one."""
    async with scene_at(postgres_url) as scene:
        await scene.acquire("job")
        scene.forge(Place(-1, scene.here.system))
        run(postgres_url, f"UPDATE {TABLE} SET lease_epoch = lease_epoch + 1")
        assert scene.row("job") == (1 + 2 * EPOCH_JUMP, scene.here)


async def test_a_row_that_is_copied_with_where_it_was_granted_keeps_both(postgres_url: str) -> None:
    async with scene_at(postgres_url) as scene:
        await scene.acquire("job")
        scene.forge_origin(Place(-1, 4711))
        run(postgres_url, f"CREATE TABLE kept AS TABLE {TABLE}")
        run(postgres_url, "UPDATE kept SET lease_name = 'copy', lease_id = 'x'")
        run(postgres_url, f"INSERT INTO {TABLE} SELECT * FROM kept")
        assert scene.row("copy") == (1, scene.here)


async def test_tables_of_the_version_before_grant_nothing_to_new_programs(postgres_url: str) -> None:
    """They would go on by one after a promotion, and nobody would know."""
    async with scene_at(postgres_url) as scene:
        run(postgres_url, f"DROP TRIGGER fencehold_leases_epoch_lifted ON {TABLE}")
        run(postgres_url, f"ALTER TABLE {TABLE} DROP COLUMN grant_timeline, DROP COLUMN grant_system")
        with pytest.raises(fencehold.ConfigurationError) as caught:
            await scene.acquire("job")
        assert caught.value.code == "schema_old"
        assert run(postgres_url, f"SELECT count(*) FROM {TABLE}") == [(0,)]


def test_what_decides_in_sql_cites_every_rule() -> None:
    ids = [rule.id for rule in places.RULES]
    for path in ("migrations/0003_grant_timeline.sql", "items/migrations/0002_token_timeline.sql"):
        [cited] = re.findall(r"^-- rules: (.*)$", (SQL / path).read_text(), re.MULTILINE)
        assert cited.split() == ids
