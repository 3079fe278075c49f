"""New code on old tables: said at first contact, with the command to run; `init` brings them up to date."""

import asyncio
import sqlite3
from contextlib import closing

import psycopg
import pytest

import fencehold
from tests.fencehold.cli.cli_process import Command

# As the version before inserts and reads: without the column that is new.
OLD_INSERT = """
INSERT INTO fencehold_leases (lease_name, holder_id, lease_epoch, acquired_at, renewed_at, expires_at, acquire_nonce)
VALUES ('{name}', 'old', 1, '2026-01-01T00:00:00.000Z', '2026-01-01T00:00:00.000Z', '2026-01-01T00:00:00.000Z', 'n')
"""


def run(url: str, statement: str) -> list[tuple[object, ...]]:
    if url.startswith("sqlite:"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None)) as file:
            return file.execute(statement).fetchall()
    with psycopg.connect(url, autocommit=True) as pg:
        cursor = pg.execute(statement.encode())
        return cursor.fetchall() if cursor.description else []


async def test_new_code_on_old_tables_is_told_at_first_contact_what_to_run(old_url: str) -> None:
    async with fencehold.connect(old_url) as store:
        leases = store.leases
        for contact in (store.leader("job").start, lambda: leases.acquire("job"), lambda: leases.read("job")):
            with pytest.raises(fencehold.ConfigurationError) as caught:
                await contact()
            assert caught.value.code == "schema_old"
            assert "`fencehold init`" in caught.value.hint


def test_a_command_on_old_tables_ends_with_78_and_runs_nothing(old_url: str) -> None:
    for arguments in (["run", "job", "--", "echo", "led"], ["ls"]):
        with Command(old_url, *arguments) as command:
            out, err = command.child.communicate(timeout=30)
        assert (command.child.returncode, out) == (78, b"")
        assert b"[schema_old]" in err
        assert b"`fencehold init`" in err


async def test_init_upgrades_the_tables_and_what_the_version_before_inserts_still_works(old_url: str) -> None:
    run(old_url, OLD_INSERT.format(name="before"))
    async with fencehold.connect(old_url) as store:
        assert "0002_lease_id" in await store.init()
        assert await store.init() == []
        run(old_url, OLD_INSERT.format(name="after"))
        run(old_url, OLD_INSERT.format(name="later"))
        leases = [await store.leases.acquire(name) for name in ("before", "after", "later", "never seen")]
        assert [lease and lease.epoch for lease in leases] == [2, 2, 2, 1]
        ids = [lease.lease_id for lease in leases if lease]
        assert len(set(ids)) == 4
        assert all(len(one) >= 32 for one in ids)


async def test_a_lease_keeps_its_id_for_ever(old_url: str) -> None:
    run(old_url, OLD_INSERT.format(name="job"))
    async with fencehold.connect(old_url) as store:
        await store.init()
        seen = set()
        for _ in range(3):
            lease = await store.leases.acquire("job")
            assert lease is not None
            renewed = await store.leases.renew(lease)
            assert renewed is not None
            released = await store.leases.release(renewed)
            read = await store.leases.read("job")
            seen |= {one.lease_id for one in (lease, renewed, released, read) if one is not None}
        assert len(seen) == 1


REAPER_RAN = "INSERT INTO outbox_reaper VALUES (1, strftime('%Y-%m-%dT%H:%M:%fZ', 'now'), 1, 0)"


async def test_a_new_worker_on_old_tables_ends_at_first_contact(old_url: str) -> None:
    """With a reaper it needs leases; without one, and as a producer in a caller's transaction, only the outbox."""
    async with fencehold.connect(old_url) as store:
        outbox = store.outbox()
        for reaper in (True, False):
            if not reaper and old_url.startswith("sqlite:"):
                run(old_url, REAPER_RAN)  # elsewhere the identity, which is asked for first, is missing too
            with pytest.raises(fencehold.ConfigurationError) as caught:
                await outbox.worker(print, reaper=reaper).run()
            assert caught.value.code in ("schema_old", "schema_missing")
            assert "`fencehold init" in caught.value.hint


# As the version before leaves events behind that it failed, or recovered from a worker that died.
OLD_EVENT = """
INSERT INTO outbox (tracking_id, event_type, payload, status, retry_count)
VALUES ('00000000-0000-0000-0000-{number:012d}', 'a', '{number}', '{status}', {tries})
"""


async def test_events_that_the_version_before_failed_or_recovered_are_all_handled(old_url: str) -> None:
    """Those it recovered twice one at a time: it counted no recoveries, and each of its tries may have been one."""
    for number, (status, tries) in enumerate([("FAILED", 3), ("FAILED", 3), ("PENDING", 2), ("PENDING", 2)]):
        run(old_url, OLD_EVENT.format(number=number, status=status, tries=tries))
    async with fencehold.connect(old_url) as store:
        outbox = store.outbox()
        await store.init()
        handled: list[tuple[int, bool]] = []

        async def handle(event: fencehold.Claim) -> None:
            handled.append((event.payload, event.is_suspect))
            if len(handled) == 4:
                worker.stop()

        worker = outbox.worker(handle, poll_every="50ms")
        async with asyncio.timeout(30):
            await worker.run()
        assert {number for number, _ in handled} == {0, 1, 2, 3}
        assert [is_suspect for number, is_suspect in handled if number >= 2] == [True, True]
        assert [number for number, _ in handled].index(3) == 3, "after the other suspect"
