"""What can be wrong with a file: missing, somebody else's, read-only. And what a look before the write would let in."""

import asyncio
import contextlib
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from fencehold.backends.sqlite.backend import SqliteBackend
from fencehold.model.election.rules import Lease, TermKey
from fencehold.model.errors import ConfigurationError, LeaseLost, Unavailable
from fencehold.testing.conformance.suite import LEASE, START, ask, plenty, take
from fencehold.testing.harness import COUNT, LEASE_TABLE, READ_COUNT
from tests.fencehold.testing.conformance.sqlite_harness import SqliteHarness

KEY = TermKey("job", "ada", 1, 60.0)
NOBODY = 65534

AS_NOBODY = """
import asyncio, os, sys
from fencehold.backends.sqlite.backend import SqliteBackend
from fencehold.model.errors import FenceholdError
from fencehold.model.election.rules import Ask

async def main():
    backend = SqliteBackend(sys.argv[1], "fencehold_leases")
    if os.getuid() == 0:  # only now: the library itself may lie where nobody can read it
        os.setgroups([]); os.setgid(int(sys.argv[2])); os.setuid(int(sys.argv[2]))
    try:
        print(await backend.leases.acquire(Ask("job", "ada", 60.0, "n"), 0.5))
    except FenceholdError as error:
        print(type(error).__name__, error.code)
    await backend.close()

asyncio.run(main())
"""


async def test_a_missing_file_is_not_made_by_any_verb(tmp_path: Path):
    path = tmp_path / "nowhere.db"
    backend = SqliteBackend(str(path), LEASE_TABLE)
    for call in (
        backend.leases.acquire(ask("job", "ada"), 1.0),
        backend.leases.renew([KEY], 1.0),
        backend.leases.release([KEY], 1.0),
        backend.leases.read(["job"], 1.0),
        backend.leases.list("", 1.0),
        backend.leases.ask_step_down("job", 1, 1.0),
    ):
        with pytest.raises(ConfigurationError) as caught:
            await call
        assert caught.value.code == "schema_missing"
    with pytest.raises(ConfigurationError):
        async with backend.fences.transaction(KEY, plenty):
            pytest.fail("a transaction on a file that does not exist")
    with pytest.raises(ConfigurationError), backend.fences.transaction_sync(KEY, plenty):
        pytest.fail("a transaction on a file that does not exist")
    await backend.fences.close()
    await backend.close()
    assert not path.exists()


async def test_a_folder_that_does_not_exist_is_named(tmp_path: Path):
    backend = SqliteBackend(str(tmp_path / "no" / "such" / "folder.db"), LEASE_TABLE)
    with pytest.raises(ConfigurationError, match="folder"):
        await backend.schema.init(1.0)
    await backend.close()


@pytest.fixture
def read_only() -> Iterator[Path]:
    """A file with its tables in a folder that every user can reach and none but root can write to."""
    with tempfile.TemporaryDirectory(prefix="fencehold-") as place:
        folder, path = Path(place), Path(place) / "a.db"

        async def make() -> None:
            backend = SqliteBackend(str(path), LEASE_TABLE)
            await backend.schema.init(5.0)
            await backend.close()

        asyncio.run(make())
        path.chmod(0o444)
        folder.chmod(0o555)
        yield path
        folder.chmod(0o755)


@pytest.mark.fault("read-only", "leader", "sqlite")
def test_a_file_in_a_read_only_folder_is_refused_and_nothing_is_changed(read_only: Path):
    command = [sys.executable, "-c", AS_NOBODY, str(read_only), str(NOBODY)]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert answer.stdout.split() == ["ConfigurationError", "read_only"], answer.stderr
    with contextlib.closing(sqlite3.connect(f"file:{read_only}?mode=ro&immutable=1", uri=True)) as connection:
        assert connection.execute(f"SELECT count(*) FROM {LEASE_TABLE}").fetchone() == (0,)


@pytest.mark.fault("slow", "leader", "sqlite")
async def test_a_file_locked_for_ever_ends_every_call_within_its_limit(tmp_path: Path):
    harness = SqliteHarness(tmp_path / "a.db")
    await harness.open()
    backend = await harness.client()
    async with harness.obstructed(), asyncio.timeout(10):
        calls = [backend.leases.acquire(ask(f"job {n}", "ada"), 0.2) for n in range(5)]
        answers = await asyncio.gather(*calls, return_exceptions=True)
    assert [getattr(answer, "code", answer) for answer in answers] == ["busy"] * 5
    assert all(isinstance(answer, Unavailable) for answer in answers)
    await harness.close()


@pytest.mark.parametrize("is_fenced", [True, False])
async def test_a_look_before_the_write_lets_a_stale_writer_in_and_the_fence_does_not(tmp_path: Path, is_fenced: bool):
    harness = SqliteHarness(tmp_path / "a.db")
    await harness.open()
    one, two = await harness.client(), await harness.client()
    await harness.set_clock(START)
    key = await take(one, "job", "ada")
    assert (await one.leases.read(["job"], 5.0))["job"].is_live  # the look
    await harness.set_clock(START + LEASE)
    assert isinstance(await two.leases.acquire(ask("job", "bob"), 5.0), Lease)  # meanwhile
    async with harness.sql.doors()[0].open() as caller:
        await caller.begin()
        with contextlib.suppress(LeaseLost):
            if is_fenced:
                await one.fences.fence(caller.target, key)
            await caller.execute(COUNT)
            await caller.commit()
    assert (await harness.sql.run(READ_COUNT))[0][0] == (0 if is_fenced else 1)
    await harness.close()
