"""`init` never says "up to date" of tables that are not whole: it names what is gone."""

import pytest

import fencehold
from fencehold.runtime.checkup import LEASES
from tests.across_packages.upgrading.test_old_tables import run

TABLES = [
    "fencehold_leases", "fencehold_items", "fencehold_items_token", "outbox", "outbox_reaper", "outbox_consumed",
]  # fmt: skip


def columns(url: str, table: str) -> list[str]:
    if url.startswith("sqlite:"):
        return [str(row[1]) for row in run(url, f"PRAGMA table_info({table})")]
    of_table = f"attrelid = '{table}'::regclass AND attnum > 0 AND NOT attisdropped"
    return [str(row[0]) for row in run(url, f"SELECT attname FROM pg_attribute WHERE {of_table}")]


async def refusal(url: str) -> fencehold.ConfigurationError:
    async with fencehold.connect(url) as store:
        store.outbox(), store.items("any")
        with pytest.raises(fencehold.ConfigurationError) as caught:
            await store.init()
    return caught.value


@pytest.mark.parametrize("table", [name for name in TABLES if name != "fencehold_items_token"])
async def test_every_column_of_every_table_is_missed_by_its_name(empty_url: str, table: str) -> None:
    async with fencehold.connect(empty_url) as store:
        store.outbox(), store.items("any")
        await store.init()
    found = columns(empty_url, table)
    assert len(found) > 2
    for column in found:
        run(empty_url, f"ALTER TABLE {table} RENAME COLUMN {column} TO gone")
        error = await refusal(empty_url)
        assert (error.code, f"{table}.{column}." in error.message) == ("column_lost", True)
        assert "backup" in error.hint
        run(empty_url, f"ALTER TABLE {table} RENAME COLUMN gone TO {column}")
    async with fencehold.connect(empty_url) as store:
        store.outbox(), store.items("any")
        assert await store.init() == []


@pytest.mark.parametrize("table", ["outbox_reaper", "outbox_consumed", "fencehold_items_token"])
async def test_a_side_table_that_is_gone_is_named(empty_url: str, table: str) -> None:
    async with fencehold.connect(empty_url) as store:
        store.outbox(), store.items("any")
        await store.init()
    is_sequence = table.endswith("_token") and not empty_url.startswith("sqlite:")
    run(empty_url, f"ALTER {'SEQUENCE' if is_sequence else 'TABLE'} {table} RENAME TO gone")
    error = await refusal(empty_url)
    assert (error.code, f"gone now: {table}." in error.message) == ("table_lost", True)


DROP_TRIGGER = "DROP TRIGGER fencehold_leases_{}"
SAFEGUARDS = {
    "postgres": {
        "ALTER TABLE fencehold_leases DROP CONSTRAINT fencehold_leases_epoch_key":
            "UNIQUE (lease_name, lease_epoch) on fencehold_leases",
        f"{DROP_TRIGGER.format('epoch_rises')} ON fencehold_leases": "trigger fencehold_leases_epoch_rises",
        f"{DROP_TRIGGER.format('row_stays')} ON fencehold_leases": "trigger fencehold_leases_row_stays",
        f"{DROP_TRIGGER.format('epoch_lifted')} ON fencehold_leases": "trigger fencehold_leases_epoch_lifted",
        "ALTER TABLE fencehold_leases DISABLE TRIGGER fencehold_leases_row_stays":
            "trigger fencehold_leases_row_stays (disabled)",
        "ALTER TABLE fencehold_leases ENABLE REPLICA TRIGGER fencehold_leases_epoch_rises":
            "trigger fencehold_leases_epoch_rises (disabled)",
    },
    "sqlite": {DROP_TRIGGER.format(name): f"trigger fencehold_leases_{name}"
               for name in ("epoch_rises", "row_stays", "has_id")},
}  # fmt: skip


@pytest.mark.parametrize(("database", "loss"), [(one, loss) for one in SAFEGUARDS for loss in SAFEGUARDS[one]])
async def test_a_safeguard_of_the_lease_table_that_is_gone_is_named(
    database: str, loss: str, request: pytest.FixtureRequest
) -> None:
    url = str(request.getfixturevalue(f"{database}_url"))
    async with fencehold.connect(url) as store:
        await store.init()
        run(url, loss)
        with pytest.raises(fencehold.ConfigurationError) as caught:
            await store.init()
        found = (await store.checkup.faults([]))[LEASES]
    assert caught.value.code == "safeguard_lost"
    assert f"out: {SAFEGUARDS[database][loss]}." in caught.value.message
    assert "fencehold sql init" in caught.value.hint
    assert (found and found.message) == caught.value.message, "doctor says the same"


async def test_safeguards_under_names_of_their_own_are_found(empty_url: str) -> None:
    """A table that was renamed keeps the triggers and keys of its old name."""
    async with fencehold.connect(empty_url) as store:
        await store.init()
    run(empty_url, "ALTER TABLE fencehold_leases RENAME TO moved")
    run(empty_url, "UPDATE fencehold_schema SET component = 'moved' WHERE component = 'fencehold_leases'")
    async with fencehold.connect(empty_url, table="moved") as store:
        assert await store.init() == []
