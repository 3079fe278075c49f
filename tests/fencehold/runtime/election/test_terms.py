"""The loop over `terms()`: before the leader starts, after it stops, and when a term ends before its block."""

import asyncio
import threading
from typing import Any

import pytest

import fencehold
import fencehold.sync
from fencehold import ConfigurationError, LeaseLost


async def end(store: fencehold.Store, term: fencehold.Term) -> None:
    """The term is over at once, and the lease free, so that the leader is soon elected again."""
    term.lost("for the test")
    row = await store.leases.read(term.name)
    assert row is not None
    assert await store.leases.release(row) is not None


def end_sync(store: fencehold.sync.Store, term: Any) -> None:
    term.lost("for the test")
    row = store.leases.read(term.name)
    assert row is not None
    assert store.leases.release(row) is not None


# Before the start and after the stop


async def test_terms_of_a_leader_that_was_neither_entered_nor_started_is_an_error() -> None:
    async with fencehold.connect("memory://not-started") as store:
        leader = store.leader("x")
        for _ in range(2):
            with pytest.raises(ConfigurationError) as raised:
                async for _ in leader.terms():
                    pass
            assert raised.value.code == "leader_not_started"
            assert "async with leader" in raised.value.hint


def test_terms_of_a_sync_leader_that_was_neither_entered_nor_started_is_an_error() -> None:
    with fencehold.sync.connect("memory://not-started") as store:
        leader = store.leader("x")
        with pytest.raises(ConfigurationError) as raised:
            list(leader.terms())
        assert raised.value.code == "leader_not_started"


async def test_terms_of_a_leader_whose_start_failed_is_an_error(sqlite_url: str) -> None:
    async with fencehold.connect(sqlite_url) as store:
        leader = store.leader("x")
        with pytest.raises(ConfigurationError, match="init"):
            await leader.start()
        with pytest.raises(ConfigurationError) as raised:
            await anext(leader.terms())
        assert raised.value.code == "schema_missing"  # what the start had failed by


async def test_terms_waits_for_a_start_under_way() -> None:
    async with fencehold.connect("memory://starting") as store:
        leader = store.leader("x")
        starting = asyncio.ensure_future(leader.start())
        await asyncio.sleep(0)
        async for term in leader.terms():
            assert term.epoch == 1
            break
        await starting


async def test_terms_of_a_leader_that_was_shut_down_ends_at_once() -> None:
    async with fencehold.connect("memory://shut-down") as store:
        leader = store.leader("x")
        async with leader:
            terms = leader.terms()
            await anext(terms)
        assert [term async for term in terms] == []
        assert [term async for term in leader.terms()] == []


# A term that ends before its block


@pytest.mark.parametrize("database", ["memory", "sqlite"])
async def test_a_term_that_ends_before_its_block_gets_no_body_and_the_loop_goes_on(
    database: str, sqlite_url: str
) -> None:
    bodies: list[int] = []
    async with fencehold.connect(sqlite_url if database == "sqlite" else "memory://skipped") as store:
        await store.init()
        async with store.leader("x") as leader:
            async for term in leader.terms():
                if term.epoch == 1:
                    await end(store, term)
                async with term:
                    assert term.is_valid
                    assert leader.term is not None
                    assert leader.term.epoch == term.epoch
                    bodies.append(term.epoch)
                    async with term.transaction():
                        pass
                if len(bodies) == 3:
                    break
                await end(store, term)
    assert bodies == [2, 3, 4]


async def test_a_term_whose_leader_stepped_down_before_its_block_gets_no_body() -> None:
    bodies: list[int] = []
    async with fencehold.connect("memory://stepped-down") as store, store.leader("x") as leader:
        async for term in leader.terms():
            if term.epoch == 1:
                await leader.step_down()
                await asyncio.wait_for(term.ended(), 10)
            async with term:
                bodies.append(term.epoch)
            break
    assert bodies == [2]


def test_a_sync_term_that_ends_before_its_block_gets_no_body_and_the_loop_goes_on(sqlite_url: str) -> None:
    bodies: list[int] = []
    with fencehold.sync.connect(sqlite_url) as store:
        store.init()
        with store.leader("x") as leader:
            for term in leader.terms():
                if term.epoch == 1:
                    end_sync(store, term)
                with term, term.transaction():
                    assert term.is_valid
                    bodies.append(term.epoch)
                if len(bodies) == 2:
                    break
                end_sync(store, term)
    assert bodies == [2, 3]


async def test_the_next_term_is_given_back_only_after_the_body_that_waited_for_it_has_left() -> None:
    async with fencehold.connect("memory://left") as store:
        leader = store.leader("x")
        entered, was_live = asyncio.Event(), []

        async def work() -> None:
            async for term in leader.terms():
                await end(store, term)
                async with term:
                    entered.set()
                    try:
                        await asyncio.Event().wait()
                    finally:
                        await asyncio.sleep(0.05)
                        row = await store.leases.read("x")
                        was_live.append(row is not None and row.is_live)

        async with leader:
            working = asyncio.ensure_future(work())
            await entered.wait()
        await working
    assert was_live == [True]


async def test_blocks_of_several_tasks_all_wait_for_the_same_next_term() -> None:
    bodies: list[int] = []

    async def block(term: fencehold.Term) -> None:
        async with term:
            bodies.append(term.epoch)

    async with fencehold.connect("memory://tasks") as store, store.leader("x") as leader:
        async for term in leader.terms():
            await end(store, term)
            async with asyncio.TaskGroup() as group:
                for _ in range(3):
                    group.create_task(block(term))
            break
    assert bodies == [2, 2, 2]


# Where to wait would be wrong


async def test_a_second_block_of_a_pass_does_not_go_on_in_the_next_term() -> None:
    async with fencehold.connect("memory://second") as store, store.leader("x") as leader:
        async for term in leader.terms():
            async with term:
                term.lost("for the test")
                await asyncio.Event().wait()
            with pytest.raises(LeaseLost) as raised:  # at once, and not when the lease has lapsed
                async with asyncio.timeout(5), term:
                    pytest.fail("the body ran")
            assert raised.value.epoch == term.epoch == 1
            break


@pytest.mark.parametrize("how", ["transaction", "_transaction_sync", "guard", "fence"])
async def test_a_block_after_fenced_work_does_not_go_on_in_the_next_term(how: str, sqlite_url: str) -> None:
    async with fencehold.connect(sqlite_url) as store:
        await store.init()
        async with store.leader("x") as leader:
            async for term in leader.terms():
                if how == "fence":
                    with pytest.raises(ConfigurationError):
                        term.fence("no connection")  # type: ignore[call-overload]
                else:
                    getattr(term, how)()
                await end(store, term)
                with pytest.raises(LeaseLost):
                    async with term:
                        pytest.fail("the body ran")
                break


async def test_a_block_that_waits_does_not_go_on_after_fenced_work_of_another_task() -> None:
    async with fencehold.connect("memory://meanwhile") as store, store.leader("x") as leader:
        async for term in leader.terms():
            term.lost("for the test")

            async def work(term: fencehold.Term = term) -> None:
                with pytest.raises(LeaseLost):
                    term.guard()
                await end(store, term)

            working = asyncio.ensure_future(work())
            with pytest.raises(LeaseLost):
                async with term:
                    pytest.fail("the body ran")
            await working
            break


async def test_a_block_of_an_earlier_pass_does_not_begin_in_a_later_term() -> None:
    async with fencehold.connect("memory://earlier") as store, store.leader("x") as leader:
        earlier: fencehold.Term | None = None
        async for term in leader.terms():
            if earlier is not None:
                with pytest.raises(LeaseLost):
                    async with earlier:
                        pytest.fail("the body ran")
                break
            earlier = term
            await end(store, term)


async def test_a_closed_loop_gives_no_further_term() -> None:
    async with fencehold.connect("memory://closed") as store, store.leader("x") as leader:
        terms = leader.terms()
        await end(store, await anext(terms))
        await terms.aclose()
        assert [term async for term in terms] == []


async def test_a_block_after_the_loop_was_left_does_not_wait_for_another_term() -> None:
    async with fencehold.connect("memory://left-loop") as store, store.leader("x") as leader:
        left: list[fencehold.Term] = []
        async for term in leader.terms():
            left.append(term)
            break
        await end(store, left[0])
        with pytest.raises(LeaseLost):
            async with left[0]:
                pytest.fail("the body ran")
        closed = leader.terms()
        term = await anext(closed)
        await closed.aclose()
        await end(store, term)
        with pytest.raises(LeaseLost):
            async with term:
                pytest.fail("the body ran")


async def test_the_term_of_a_leader_is_never_another_one_than_it_was() -> None:
    async with fencehold.connect("memory://same") as store, store.leader("x") as leader:
        assert await leader.wait_for_leadership(10)
        kept = leader.term
        assert kept is not None
        async for term in leader.terms():
            await end(store, term)
            async with term:
                assert term.epoch == 2
                assert (kept.epoch, kept.is_valid) == (1, False)
            break
        with pytest.raises(LeaseLost):
            async with kept:
                pytest.fail("the body ran")


async def test_a_block_that_waits_raises_lease_lost_when_the_leader_stops() -> None:
    async with fencehold.connect("memory://stops") as store:
        leader = store.leader("x")
        await leader.start()
        async for term in leader.terms():
            term.lost("for the test")  # and nobody can lead until the lease lapses
            asyncio.get_running_loop().call_soon(lambda: asyncio.ensure_future(leader.shutdown()))
            with pytest.raises(LeaseLost):
                async with term:
                    pytest.fail("the body ran")


async def test_a_block_that_waits_can_be_cancelled_and_timed_out() -> None:
    async with fencehold.connect("memory://cancelled") as store, store.leader("x") as leader:
        async for term in leader.terms():
            term.lost("for the test")  # and nobody can lead until the lease lapses
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.01), term:
                    pytest.fail("the body ran")
            break
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0


def test_a_sync_block_outside_the_loop_does_not_run() -> None:
    with fencehold.sync.connect("memory://outside-sync") as store:
        store.init()
        with store.leader("x") as leader:
            assert leader.wait_for_leadership(10)
            term = leader.term
            assert term is not None
        with pytest.raises(LeaseLost), term:
            pytest.fail("the body ran")
    with pytest.raises(LeaseLost), term:  # the store is closed
        pytest.fail("the body ran")


def test_a_sync_block_that_waits_raises_lease_lost_when_the_leader_stops() -> None:
    with fencehold.sync.connect("memory://stops-sync") as store:
        store.init()
        leader = store.leader("x")
        leader.start()
        stopper = threading.Thread(target=leader.shutdown)
        for term in leader.terms():
            term.lost("for the test")  # and nobody can lead until the lease lapses
            stopper.start()
            with pytest.raises(LeaseLost), term:
                pytest.fail("the body ran")
        stopper.join()
