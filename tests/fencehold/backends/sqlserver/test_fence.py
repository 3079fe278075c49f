"""What is SQL Server's own about the fence: the server ends no idle transaction, so the commit asks once more."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Iterator
from typing import Any

import pytest

from fencehold.backends.sql.statements import Statements
from fencehold.backends.sqlserver import batch, driver
from fencehold.backends.sqlserver.address import Address
from fencehold.backends.sqlserver.callers import SqlServerFence
from fencehold.model.election.rules import Lease, TermKey
from fencehold.model.errors import ConfigurationError, LeaseLost, Unavailable
from fencehold.ports.backend import Backend
from fencehold.testing.conformance.leases.fences import cannot_take
from fencehold.testing.conformance.suite import LEASE, LEASE_S, START, ask, plenty, release, take
from fencehold.testing.harness import ADD_NOTE, CALL_LIMIT_S, COUNT, LEASE_TABLE
from tests.fencehold.testing.conformance.sqlserver_harness import SqlServerHarness

pytestmark = pytest.mark.limit(120)


async def nothing_is_kept(harness: SqlServerHarness, body: Awaitable[None], code: str) -> None:
    """Refused for that reason, and with it all that was written in the block."""
    with pytest.raises(ConfigurationError) as caught:
        await body
    assert caught.value.code == code
    assert await harness.written() == []


@contextlib.asynccontextmanager
async def opened(url: str) -> AsyncIterator[SqlServerHarness]:
    harness = SqlServerHarness(url)
    try:
        await harness.open()
        await harness.set_clock(START)
        yield harness
    finally:
        await harness.close()


async def take_over(backend: Backend) -> Lease:
    answer = await backend.leases.acquire(ask("job", "bob"), CALL_LIMIT_S)
    assert isinstance(answer, Lease), answer
    return answer


async def test_a_frozen_transaction_holds_up_a_takeover_for_a_lease_and_then_cannot_commit(mssql_url: str):
    async with opened(mssql_url) as harness:
        one, two = await harness.client(), await harness.client()
        key = await take(one, "job", "ada")

        async def body() -> None:
            async with one.fences.transaction(key, plenty) as tx:
                await harness.write(tx, 1)
                await harness.set_clock(START + 2 * LEASE)
                await cannot_take(two, "job", "bob")
                await harness.set_clock(START + 2 * LEASE + harness.traits.tick)
                assert (await take_over(two)).epoch == 2

        with pytest.raises(LeaseLost) as caught:
            await body()
        assert "nothing was committed" in caught.value.message
        assert await harness.written() == []


@pytest.mark.parametrize(("holder", "epoch"), [("bob", 1), ("ada", 2)])
async def test_who_does_not_hold_the_lease_does_not_get_into_the_block(mssql_url: str, holder: str, epoch: int):
    async with opened(mssql_url) as harness:
        backend = await harness.client()
        await take(backend, "job", "ada")
        with pytest.raises(LeaseLost):
            async with backend.fences.transaction(TermKey("job", holder, epoch, LEASE_S), plenty):
                pytest.fail("the body ran")


async def test_a_fence_in_the_callers_own_transaction_is_never_passed(mssql_url: str):
    async with opened(mssql_url) as harness:
        one, two = await harness.client(), await harness.client()
        key = await take(one, "job", "ada")
        with contextlib.closing(driver.connect(Address.of(mssql_url), limit_s=10)) as connection:
            await asyncio.to_thread(batch.rows, connection, "BEGIN TRANSACTION")
            await one.fences.fence(connection, key)
            await asyncio.to_thread(batch.rows, connection, ADD_NOTE.format(note=1))
            await harness.set_clock(START + 20 * LEASE)
            await cannot_take(two, "job", "bob")
            await asyncio.to_thread(batch.rows, connection, "COMMIT TRANSACTION")
        assert (await take_over(two)).epoch == 2
        assert await harness.written() == [1]


async def test_a_lease_that_was_given_back_is_not_taken_before_the_open_transaction_ends(mssql_url: str):
    async with opened(mssql_url) as harness:
        one, two = await harness.client(), await harness.client()
        key = await take(one, "job", "ada")
        async with one.fences.transaction(key, plenty) as tx:
            await harness.write(tx, 1)
            await release(one, key)
            await cannot_take(two, "job", "bob")
        assert (await take_over(two)).epoch == 2
        assert await harness.written() == [1]


@pytest.mark.parametrize("ending", ["COMMIT TRANSACTION", "ROLLBACK TRANSACTION"])
async def test_what_follows_an_end_inside_the_block_is_refused_and_not_kept(mssql_url: str, ending: str):
    async with opened(mssql_url) as harness:
        backend = await harness.client()
        key = await take(backend, "job", "ada")

        async def body() -> None:
            async with backend.fences.transaction(key, plenty) as tx:
                await tx.execute(ending)
                await harness.write(tx, 2)

        await nothing_is_kept(harness, body(), "fence_gone")


async def test_what_follows_an_error_that_undid_everything_is_refused_and_not_kept(mssql_url: str):
    async with opened(mssql_url) as harness:
        backend = await harness.client()
        key = await take(backend, "job", "ada")

        async def body() -> None:
            async with backend.fences.transaction(key, plenty) as tx:
                await harness.write(tx, 1)
                with contextlib.suppress(harness.sql.error):
                    await tx.execute("INSERT INTO counters (id, n) VALUES (1, 0)")
                await harness.write(tx, 2)

        await nothing_is_kept(harness, body(), "fence_gone")


async def test_a_guard_of_the_new_term_lets_through_and_one_of_the_old_does_not(mssql_url: str):
    async with opened(mssql_url) as harness:
        backend = await harness.client()
        old = await take(backend, "job", "ada")
        await harness.set_clock(START + LEASE)
        new = await take(backend, "job", "ada", nonce="again")
        for key, changed in ((old, 0), (new, 1)):
            guard = backend.fences.guard(key)
            with contextlib.closing(driver.connect(Address.of(mssql_url), limit_s=10)) as connection:
                cursor = connection.cursor().execute(f"{COUNT} AND {guard.sql}", dict(guard.params))
                assert cursor.rowcount == changed


async def test_one_lock_for_one_table_however_its_name_is_written(mssql_url: str):
    async with opened(mssql_url) as harness:
        one, two = await harness.client(), await harness.client("dbo.fencehold_leases")
        key = await take(one, "job", "ada")
        await take(two, "another job", "bob")  # some servers are slow when they read a statement for the first time
        async with one.fences.transaction(key, plenty) as tx:
            await harness.write(tx, 1)
            await harness.set_clock(START + LEASE)
            await cannot_take(two, "job", "bob")
        assert (await take_over(two)).epoch == 2


async def test_statements_of_a_fenced_transaction_say_how_many_rows_they_changed(mssql_url: str):
    async with opened(mssql_url) as harness:
        backend = await harness.client()
        key = await take(backend, "job", "ada")
        async with backend.fences.transaction(key, plenty) as tx:
            assert (await tx.execute("UPDATE counters SET n = n + 1 WHERE id = ?", (1,))).rowcount == 1
            assert (await tx.execute("UPDATE counters SET n = n + 1 WHERE id = %(id)s", {"id": 2})).rowcount == 0
            assert tuple(await (await tx.execute("SELECT n FROM counters")).fetchone()) == (1,)


async def test_an_error_behind_the_first_result_leaves_the_block_and_nothing_is_kept(mssql_url: str):
    async with opened(mssql_url) as harness:
        backend = await harness.client()
        key = await take(backend, "job", "ada")
        with pytest.raises(harness.sql.error, match="too late"):
            async with backend.fences.transaction(key, plenty) as tx:
                await tx.execute(ADD_NOTE.format(note=1) + "; RAISERROR (N'too late', 16, 1)")
        assert await harness.written() == []


async def test_a_statement_may_give_its_rows_behind_a_count(mssql_url: str):
    async with opened(mssql_url) as harness:
        backend = await harness.client()
        key = await take(backend, "job", "ada")
        async with backend.fences.transaction(key, plenty) as tx:
            result: Any = await tx.execute(ADD_NOTE.format(note=1) + "; SELECT 7; SELECT 8")
            assert [tuple(row) async for row in result] == [(7,)]
            assert await result.fetchone() is None
            result = await tx.execute("SELECT 1 UNION SELECT 2")
            assert [tuple(row) for row in await result.fetchmany(5)] == [(1,), (2,)]
        assert await harness.written() == [1]


async def test_without_an_event_loop_rows_are_not_awaited(mssql_url: str):
    async with opened(mssql_url) as harness:
        backend = await harness.client()
        key = await take(backend, "job", "ada")

        def body() -> None:
            with backend.fences.transaction_sync(key, plenty) as tx:
                result = tx.execute("SELECT n AS n FROM counters")
                assert [one[0] for one in result.description] == ["n"]
                assert tuple(result.fetchone()) == (0,)
                assert result.fetchall() == []
                assert [tuple(row) for row in tx.execute("SELECT 5")] == [(5,)]

        await asyncio.to_thread(body)


@pytest.mark.parametrize("ending", ["commit", "rollback"])
async def test_the_connection_of_a_transaction_cannot_end_it(mssql_url: str, ending: str):
    async with opened(mssql_url) as harness:
        backend = await harness.client()
        key = await take(backend, "job", "ada")

        async def body() -> None:
            async with backend.fences.transaction(key, plenty) as tx:
                await harness.write(tx, 1)
                getattr(tx.connection, ending)()

        await nothing_is_kept(harness, body(), "fence_gone")


@contextlib.contextmanager
def counters_locked(url: str) -> Iterator[driver.Connection]:
    with contextlib.closing(driver.connect(Address.of(url), limit_s=10)) as connection:
        batch.rows(connection, "BEGIN TRANSACTION")
        batch.rows(connection, "UPDATE counters SET n = n + 1")
        yield connection


async def test_a_transaction_with_a_statement_that_was_given_up_is_not_committed(mssql_url: str):
    async with opened(mssql_url) as harness:
        backend = await harness.client()
        key = await take(backend, "job", "ada")

        async def body() -> None:
            async with backend.fences.transaction(key, plenty) as tx:
                await harness.write(tx, 1)
                with counters_locked(mssql_url), contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(0.2):
                        await tx.execute(COUNT)

        await nothing_is_kept(harness, body(), "statement_given_up")


async def test_the_loop_runs_on_while_a_statement_of_the_callers_is_spoilt(mssql_url: str):
    """The statement waits for a lock that only this loop lets go."""
    async with opened(mssql_url) as harness:
        backend = await harness.client()
        with (
            contextlib.closing(driver.connect(Address.of(mssql_url), limit_s=10)) as connection,
            counters_locked(mssql_url) as other,
        ):
            await asyncio.to_thread(batch.rows, connection, "BEGIN TRANSACTION")
            await asyncio.to_thread(batch.rows, connection, ADD_NOTE.format(note=1))
            statement = asyncio.create_task(asyncio.to_thread(batch.rows, connection, COUNT))
            await harness.sql.until_one_waits()
            spoiling = asyncio.create_task(backend.fences.spoil(connection))
            await asyncio.to_thread(batch.rows, other, "ROLLBACK TRANSACTION")
            await asyncio.gather(statement, spoiling)
            await asyncio.to_thread(batch.rows, connection, "IF @@TRANCOUNT > 0 COMMIT TRANSACTION")
        assert await harness.written() == []


async def test_the_settings_of_one_transaction_are_not_those_of_the_next(mssql_url: str):
    """The second is on the session of the first. Without the setting, what follows an end inside it would be kept."""
    async with opened(mssql_url) as harness:
        backend = await harness.client()
        key = await take(backend, "job", "ada")
        async with backend.fences.transaction(key, plenty) as tx:
            await tx.execute("SET IMPLICIT_TRANSACTIONS OFF")
            (first,) = await (await tx.execute("SELECT @@SPID")).fetchone()

        async def body() -> None:
            async with backend.fences.transaction(key, plenty) as tx:
                assert tuple(await (await tx.execute("SELECT @@SPID")).fetchone()) == (first,)
                await tx.execute("ROLLBACK TRANSACTION")
                await harness.write(tx, 2)

        await nothing_is_kept(harness, body(), "fence_gone")


async def test_a_kept_session_that_died_is_replaced(mssql_url: str):
    async with opened(mssql_url) as harness:
        backend = await harness.client()
        key = await take(backend, "job", "ada")
        async with backend.fences.transaction(key, plenty) as tx:
            (session,) = await (await tx.execute("SELECT @@SPID")).fetchone()
        await harness.sql.run(f"KILL {session:d}")
        async with backend.fences.transaction(key, plenty) as tx:
            await harness.write(tx, 1)
        assert await harness.written() == [1]


class Failing(Statements):
    """Its fence is an error that leaves the transaction open, as most of this server's do."""

    def named(self, name: str) -> str:
        return "RAISERROR (N'not now', 16, 1)" if name == "fence" else super().named(name)


async def test_a_fence_that_fails_leaves_nothing_to_commit(mssql_url: str):
    async with opened(mssql_url) as harness:
        key = await take(await harness.client(), "job", "ada")
        statements = Failing("fencehold.backends.sqlserver", LEASE_TABLE)
        with contextlib.closing(driver.connect(Address.of(mssql_url), limit_s=10)) as connection:
            await asyncio.to_thread(batch.rows, connection, "BEGIN TRANSACTION")
            await asyncio.to_thread(batch.rows, connection, ADD_NOTE.format(note=1))
            with pytest.raises(Unavailable):
                await SqlServerFence(statements).fence(connection, key)
            await asyncio.to_thread(batch.rows, connection, "IF @@TRANCOUNT > 0 COMMIT TRANSACTION")
        assert await harness.written() == []


async def test_a_fence_behind_an_unread_cursor_is_refused_and_nothing_can_be_committed(mssql_url: str):
    async with opened(mssql_url) as harness:
        backend = await harness.client()
        key = await take(backend, "job", "ada")
        with contextlib.closing(driver.connect(Address.of(mssql_url), limit_s=10)) as connection:
            await asyncio.to_thread(batch.rows, connection, "BEGIN TRANSACTION")
            await asyncio.to_thread(batch.rows, connection, ADD_NOTE.format(note=1))
            cursor = connection.cursor()
            await asyncio.to_thread(cursor.execute, "SELECT 1; SELECT 2")
            with pytest.raises(ConfigurationError) as caught:
                await backend.fences.fence(connection, key)
            assert caught.value.code == "cursor_open"
            with pytest.raises(driver.Error):
                connection.cursor()
        assert await harness.written() == []
