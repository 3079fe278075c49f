"""What is particular to SQLite."""

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
