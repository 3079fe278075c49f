"""A file that is replaced under running programs: they say so and go on with the new one, and write nothing more
into the old."""

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

import fencehold
import fencehold.sync
from fencehold.backends.sqlite.session import Session
from tests.fencehold.runtime.outbox.scene import Gate, Heard, running

SIDES = ("-wal", "-shm")


def path_of(url: str) -> Path:
    return Path(url.removeprefix("sqlite:///"))


async def made(url: str) -> None:
    async with fencehold.connect(url) as store:
        store.outbox()
        await store.init()


async def another(url: str) -> Path:
    """A second file with the same tables, to take the place of the first."""
    other = path_of(url).with_name("other.db")
    await made(f"sqlite:///{other}")
    return other


def replace(url: str, by: Path) -> None:
    """As one restores a backup: with the journal of the old file removed."""
    for ending in SIDES:
        path_of(url).with_name(path_of(url).name + ending).unlink(missing_ok=True)
    shutil.move(by, path_of(url))


async def test_a_worker_goes_on_with_the_new_file_and_says_so(sqlite_url: str) -> None:
    await made(sqlite_url)
    heard, gate = Heard(), Gate(is_open=True)
    async with fencehold.connect(sqlite_url, facts=heard) as store:
        outbox = store.outbox(lease="5s")
        async with running(outbox.worker(gate, poll_every=0.1)):
            before = await outbox.add("a", 1)
            await gate.until(lambda: before in gate.done)
            replace(sqlite_url, await another(sqlite_url))
            after = await outbox.add("a", 2)
            await gate.until(lambda: after in gate.done)
        told = await heard.once("file_replaced")
        assert "replaced by another file" in told["detail"]
        assert [row.tracking_id for row in await outbox.find()] == [after]


async def test_a_file_that_is_removed_is_missed_until_there_is_one_again(sqlite_url: str) -> None:
    await made(sqlite_url)
    async with fencehold.connect(sqlite_url) as store:
        outbox = store.outbox()
        await outbox.add("a", 1)
        for ending in ("", *SIDES):
            Path(f"{path_of(sqlite_url)}{ending}").unlink(missing_ok=True)
        with pytest.raises(fencehold.ConfigurationError) as caught:
            await outbox.add("a", 2)
        assert caught.value.code == "schema_missing"
        await made(sqlite_url)
        await outbox.add("a", 3)
        assert [row.payload for row in await outbox.find()] == ["3"]


async def test_a_new_file_is_not_read_together_with_the_journal_of_the_old(sqlite_url: str) -> None:
    """SQLite would: what it then shows is neither the one file nor the other."""
    await made(sqlite_url)
    other = await another(sqlite_url)
    async with fencehold.connect(sqlite_url) as store:
        outbox = store.outbox()
        for n in (1, 2):
            await outbox.add("a", n)
        shutil.move(other, path_of(sqlite_url))
        for _ in range(2):
            with pytest.raises(fencehold.ConfigurationError, match="SQLite would mix both") as caught:
                await outbox.add("a", 3)
            assert caught.value.code == "file_replaced"
        for ending in SIDES:
            Path(f"{path_of(sqlite_url)}{ending}").unlink()
        await outbox.add("a", 4)
        assert [row.payload for row in await outbox.find()] == ["4"]


async def test_a_leader_whose_lease_is_not_in_the_new_file_has_lost(sqlite_url: str) -> None:
    await made(sqlite_url)
    other = await another(sqlite_url)
    async with fencehold.connect(sqlite_url) as store, store.leader("job", lease="3s") as leader:
        assert await leader.wait_for_leadership(20)
        term = leader.term
        assert term is not None
        replace(sqlite_url, other)
        await term.ended()
        assert not term.is_valid


async def in_transaction(term: fencehold.Term, url: str, other: Path) -> None:
    async with term.transaction() as tx:
        await tx.execute("CREATE TABLE mine (a)")
        replace(url, other)


async def test_a_fenced_transaction_is_not_committed_into_a_file_that_was_replaced(sqlite_url: str) -> None:
    await made(sqlite_url)
    other = await another(sqlite_url)
    async with fencehold.connect(sqlite_url) as store, store.leader("job", lease="60s") as leader:
        assert await leader.wait_for_leadership(20)
        assert leader.term is not None
        with pytest.raises(fencehold.FenceholdError) as caught:
            await in_transaction(leader.term, sqlite_url, other)
        assert caught.value.code == "file_replaced"
        with pytest.raises(fencehold.LeaseLost):
            async with leader.term.transaction():
                raise AssertionError("the lease is not in the new file")
    with closing(sqlite3.connect(path_of(sqlite_url))) as connection:
        assert connection.execute("SELECT count(*) FROM sqlite_master WHERE name = 'mine'").fetchone() == (0,)


def in_blocking_transaction(term: fencehold.sync.Term, url: str, other: Path) -> None:
    with term.transaction() as tx:
        tx.execute("CREATE TABLE mine (a)")
        replace(url, other)


def test_without_an_event_loop_it_is_not_committed_either(sqlite_url: str, tmp_path: Path) -> None:
    with fencehold.sync.connect(sqlite_url) as store, fencehold.sync.connect(f"sqlite:///{tmp_path}/x.db") as second:
        store.init()
        second.init()
        second.close()
        with store.leader("job", lease="60s") as leader:
            assert leader.wait_for_leadership(20)
            assert leader.term is not None
            with pytest.raises(fencehold.Unavailable) as caught:
                in_blocking_transaction(leader.term, sqlite_url, tmp_path / "x.db")
            assert caught.value.code == "file_replaced"


async def test_a_write_that_went_into_the_old_file_at_the_last_moment_is_uncertain(sqlite_url: str) -> None:
    await made(sqlite_url)
    other, session = await another(sqlite_url), Session(str(path_of(sqlite_url)))

    def write(connection: sqlite3.Connection) -> None:
        connection.execute("CREATE TABLE mine (a)")
        replace(sqlite_url, other)

    with pytest.raises(fencehold.Uncertain) as caught:
        await session.write(write, 5.0)
    assert caught.value.code == "file_replaced"
    await session.close()


async def test_another_working_directory_is_no_other_file(
    sqlite_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    async with fencehold.connect("sqlite:///app.db") as store:
        await store.init()
        await store.leases.acquire("job")
        monkeypatch.chdir(tmp_path / "elsewhere")
        assert await store.leases.read("job")
