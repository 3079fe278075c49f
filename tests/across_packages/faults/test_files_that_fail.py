"""A SQLite file on a full disk, that may not be written, or that another process keeps locked."""

import contextlib
import sqlite3
from pathlib import Path

import pytest

import fencehold
from tests.across_packages.faults.conftest import Used
from tests.across_packages.faults.uses import Use, works_on
from tests.conftest import not_run
from tests.servers.programs import Missing
from tests.servers.small_disk import SmallDisk
from tests.servers.unwritable import unwritable


@pytest.mark.fault("disk-full", "each", "sqlite")
async def test_a_full_disk_is_told_and_worked_on_when_there_is_room(disk: SmallDisk, used: Used) -> None:
    async with used(f"sqlite:///{disk.folder}/app.db") as use:
        disk.fill()
        with pytest.raises(fencehold.Unavailable) as caught:
            await works_on(use)
        assert caught.value.code == "disk_full"
        disk.make_room()
        await use.recovers()


@pytest.mark.fault("read-only", "each", "sqlite")
async def test_a_file_that_may_not_be_written_is_refused_and_worked_on_when_it_may(
    tmp_path: Path, capability: str, used: Used, request: pytest.FixtureRequest
) -> None:
    url = f"sqlite:///{tmp_path}/app.db"
    async with used(url):
        pass
    try:
        with unwritable(tmp_path), pytest.raises(fencehold.FenceholdError) as caught:
            async with fencehold.connect(url) as store, Use(store, capability) as use:
                await use.work()
    except Missing as missing:
        not_run(request.config, missing)
    assert caught.value.hint
    async with fencehold.connect(url) as store, Use(store, capability) as use:
        await use.recovers()


@pytest.mark.long
@pytest.mark.fault("slow", "each", "sqlite")
async def test_a_file_that_another_keeps_locked_is_told_and_worked_on_when_it_is_free(
    sqlite_url: str, used: Used
) -> None:
    async with used(sqlite_url) as use:
        with contextlib.closing(sqlite3.connect(sqlite_url.removeprefix("sqlite:///"))) as other:
            other.execute("BEGIN IMMEDIATE")
            use.store.leases._limit_s = 0.2
            with pytest.raises((fencehold.Unavailable, fencehold.Uncertain)):
                await use.work()
            other.rollback()
        await use.recovers()
