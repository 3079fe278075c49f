"""What an instance is told of its tables before it leads: what it may not do, and whose they are."""

import asyncio
import os

import psycopg
import pytest

from submission_manager.fitness import Fitness
from tests.servers.roles import Role
from tests.submission_manager.stores.scene import LIMIT_S, Scene, make_lease_table, scene

OWN, OTHER = "executor", "another"


async def misfit(at: Scene, lease_name: str = OWN) -> str | None:
    found = await Fitness(at.store.intake, lease_name).misfit(LIMIT_S)
    return None if found is None else str(found)


async def ready(at: Scene) -> None:
    await make_lease_table(at.url)


def give_away(at: Scene, lease_name: str) -> None:
    """As a leader of the version before leaves it: a row of its lease, and no owner on record."""
    at.sql("DELETE FROM submission_owner")
    stamp = {"sqlite": "'2020-01-01T00:00:00.000Z'", "postgres": "now()", "sqlserver": "SYSUTCDATETIME()"}[at.dialect]
    columns = "lease_name, holder_id, lease_epoch, acquired_at, renewed_at, expires_at, acquire_nonce"
    at.sql(
        f"INSERT INTO submission_manager_leases ({columns})"
        f" VALUES ('{lease_name}', 'sm-1', 7, {stamp}, {stamp}, {stamp}, '')"
    )


async def test_the_first_lease_has_the_schedule_and_no_other_gets_it(empty_url):
    async with scene(empty_url) as at:
        await ready(at)
        stores = [await at.another() for _ in range(4)]
        names = [f"lease-{number}" for number in range(4)]
        owners = await asyncio.gather(
            *(store.intake.owner(name, LIMIT_S) for store, name in zip(stores, names, strict=True))
        )
        assert len(set(owners)) == 1
        assert owners[0] in names
        assert await at.store.intake.owner(OTHER, LIMIT_S) == owners[0]
        assert await misfit(at, owners[0]) is None
        refused = await misfit(at, OTHER)
        assert refused is not None
        assert all(word in refused for word in ("[other_lease]", owners[0], OTHER, "SM_LEASE_NAME"))


async def test_tables_of_the_version_before_stay_with_the_lease_that_used_them(empty_url):
    async with scene(empty_url) as at:
        await ready(at)
        give_away(at, OWN)
        assert await at.store.intake.owner(OTHER, LIMIT_S) == OWN, "a new name does not take them by starting first"
        assert at.sql("SELECT lease_name FROM submission_owner") == []
        assert await at.store.intake.owner(OWN, LIMIT_S) == OWN
        assert [tuple(row) for row in at.sql("SELECT lease_name FROM submission_owner")] == [(OWN,)]
        assert await at.store.intake.owner(OTHER, LIMIT_S) == OWN


@pytest.mark.parametrize(
    ("right", "table"),
    [
        ("INSERT", "submission_attempts"), ("SELECT", "submission_attempts"), ("INSERT", "submission_intents"),
        ("UPDATE", "submission_intents"), ("UPDATE", "submission_manager_leases"), ("SELECT", "submission_owner"),
    ],
)  # fmt: skip
async def test_each_right_that_is_missing_is_named(postgres_url, right, table):
    async with scene(postgres_url) as owner:
        await ready(owner)
    clerk = Role(postgres_url, "submission_clerk_2")
    try:
        clerk.may_use_all_tables()
        async with scene_as(clerk) as at:
            assert await misfit(at) is None
            clerk.owner_says(f"REVOKE {right} ON {table} FROM {{}}")
            assert await at.store.intake.rights_missing(LIMIT_S) == [f"{right} on {table}"]
            refused = await misfit(at)
            assert refused is not None
            assert all(word in refused for word in ("[no_permission]", f"{right} on {table}", "GRANT"))
    finally:
        clerk.drop()


def scene_as(role: Role):
    with psycopg.connect(role.owner_url, autocommit=True) as owner:
        owner.execute("GRANT SELECT ON fencehold_schema TO PUBLIC")
    return scene(role.url)


async def test_a_file_that_cannot_be_written_is_named(sqlite_url, monkeypatch):
    async with scene(sqlite_url) as at:
        await ready(at)
        assert await at.store.intake.rights_missing(LIMIT_S) == []
        path = sqlite_url.removeprefix("sqlite:///")
        access = os.access
        monkeypatch.setattr(os, "access", lambda place, mode, **options: place != path and access(place, mode))
        assert await at.store.intake.rights_missing(LIMIT_S) == [f"write permission on {path}"]
