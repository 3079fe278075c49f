"""What is particular to SQLite."""

import asyncio
import threading

import pytest

import fencehold


async def test_a_follower_that_would_not_poll_for_an_hour_notices_that_the_file_changed(sqlite_url: str) -> None:
    async with (
        fencehold.connect(sqlite_url) as ours,
        fencehold.connect(sqlite_url) as theirs,
    ):
        await ours.init()
        async with ours.leader("x", lease="2h") as first:
            assert await first.wait_for_leadership(10)
            async with theirs.leader("x", lease="2h") as second:
                assert not await second.wait_for_leadership(0.01)
                await first.step_down()
                assert await second.wait_for_leadership(10)


async def test_two_fenced_transactions_of_one_process_take_turns(sqlite_url: str) -> None:
    async with fencehold.connect(sqlite_url) as store:
        await store.init()
        async with store.leader("x", lease="60s") as one, store.leader("y", lease="60s") as two:
            assert await one.wait_for_leadership(10)
            assert await two.wait_for_leadership(10)
            assert one.term is not None
            assert two.term is not None
            async with one.term.transaction() as tx:
                await tx.execute("CREATE TABLE t (a)")
                waiting = two.term.transaction()
            async with waiting as tx:
                result = await tx.execute("INSERT INTO t VALUES (?) RETURNING a", [1])
                assert await result.fetchall() == [(1,)]


async def test_a_transaction_with_a_statement_that_was_given_up_is_not_committed(sqlite_url: str) -> None:
    loop = asyncio.get_running_loop()
    begun, go = asyncio.Event(), threading.Event()

    def pause() -> int:
        loop.call_soon_threadsafe(begun.set)
        return int(go.wait(60))

    async def body(term: fencehold.Term) -> None:
        async with term.transaction() as tx:
            await tx.execute("INSERT INTO t VALUES (1)")
            tx.connection.create_function("pause", 0, pause)
            statement = asyncio.create_task(tx.execute("INSERT INTO t SELECT pause()"))
            await begun.wait()
            statement.cancel()
            await asyncio.wait([statement])
            go.set()

    async with fencehold.connect(sqlite_url) as store:
        await store.init()
        async with store.leader("x", lease="60s") as leader:
            assert await leader.wait_for_leadership(10)
            assert leader.term is not None
            async with leader.term.transaction() as tx:
                await tx.execute("CREATE TABLE t (a)")
            with pytest.raises(fencehold.ConfigurationError) as caught:
                await body(leader.term)
            assert caught.value.code == "statement_given_up"
            async with leader.term.transaction() as tx:
                assert await (await tx.execute("SELECT a FROM t")).fetchall() == []
