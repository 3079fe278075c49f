"""The fenced transaction of programs without an event loop keeps the same promises."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

import pytest

from fencehold.model.election.leases import TermKey
from fencehold.model.errors import FenceholdError, LeaseLost
from fencehold.ports.backend import Backend
from fencehold.ports.fence import SyncTransaction
from fencehold.testing.conformance.leases.fences import cannot_take
from fencehold.testing.conformance.needs import needs
from fencehold.testing.conformance.suite import LEASE, LEASE_S, START, LeaseTests, plenty, take
from fencehold.testing.harness import ADD_NOTE, Can, Harness

Body = Callable[[SyncTransaction], object]


async def in_thread(backend: Backend, key: TermKey, body: Body, remaining_s: Callable[[], float] = plenty) -> None:
    """Run the transaction in a thread, as a program without an event loop does."""

    def run() -> None:
        with backend.fences.transaction_sync(key, remaining_s) as tx:
            body(tx)

    await asyncio.to_thread(run)


def noting(note: int) -> Body:
    return lambda tx: tx.execute(ADD_NOTE.format(note=note))


@needs(Can.FENCES, Can.SQL)
class SyncFences(LeaseTests):
    async def test_the_holder_writes_until_the_last_tick_and_not_at_expiry(self, harness: Harness) -> None:
        backend = await harness.client()
        await harness.set_clock(START)
        key = await take(backend, "job", "ada")
        await harness.set_clock(START + LEASE - harness.traits.tick)
        await in_thread(backend, key, noting(1))
        await harness.set_clock(START + LEASE)
        with pytest.raises(LeaseLost):
            await in_thread(backend, key, noting(666))
        assert await harness.written() == [1]

    async def test_a_stale_token_is_refused(self, harness: Harness) -> None:
        backend = await harness.client()
        await harness.set_clock(START)
        await take(backend, "job", "ada")
        for holder, epoch in [("bob", 1), ("ada", 2), ("ada", 0)]:
            with pytest.raises(LeaseLost):
                await in_thread(backend, TermKey("job", holder, epoch, LEASE_S), noting(666))
        assert await harness.written() == []

    async def test_a_takeover_waits_for_the_open_transaction(self, harness: Harness) -> None:
        one, two = await harness.client(), await harness.client()
        await harness.set_clock(START)
        key = await take(one, "job", "ada")
        loop = asyncio.get_running_loop()

        def body(tx: SyncTransaction) -> None:
            tx.execute(ADD_NOTE.format(note=1))
            asyncio.run_coroutine_threadsafe(others_try(), loop).result(20)

        async def others_try() -> None:
            await harness.set_clock(START + LEASE)
            await cannot_take(two, "job", "bob")

        await in_thread(one, key, body)
        assert (await take(two, "job", "bob")).epoch == 2
        assert await harness.written() == [1]

    async def test_an_error_in_the_body_writes_nothing(self, harness: Harness) -> None:
        backend = await harness.client()
        key = await take(backend, "job", "ada")

        def body(tx: SyncTransaction) -> None:
            tx.execute(ADD_NOTE.format(note=1))
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await in_thread(backend, key, body)
        await in_thread(backend, key, noting(2))
        assert await harness.written() == [2]

    async def test_a_term_that_ends_inside_the_body_does_not_commit(self, harness: Harness) -> None:
        backend = await harness.client()
        key = await take(backend, "job", "ada")
        left_s = [60.0]

        def body(tx: SyncTransaction) -> None:
            tx.execute(ADD_NOTE.format(note=1))
            left_s[0] = 0.0

        with pytest.raises(LeaseLost):
            await in_thread(backend, key, body, lambda: left_s[0])
        with pytest.raises(LeaseLost):
            await in_thread(backend, key, noting(2), lambda: 0.0)
        assert await harness.written() == []

    async def test_a_failed_statement_that_was_passed_over_is_no_false_yes(self, harness: Harness) -> None:
        """Either the rest is committed, or the block raises."""
        backend = await harness.client()
        key = await take(backend, "job", "ada")

        def body(tx: SyncTransaction) -> None:
            tx.execute(ADD_NOTE.format(note=1))
            with suppress(harness.sql.error):
                tx.execute("INSERT INTO no_such_table VALUES (1)")

        try:
            await in_thread(backend, key, body)
        except FenceholdError:
            assert await harness.written() == []
        else:
            assert await harness.written() == [1], "the block ended well and nothing was written"

    async def test_an_obstructed_store_is_told_in_the_library_s_own_words(self, harness: Harness) -> None:
        """Another transaction blocks this one: that is our error. Only the caller's statements raise the driver's."""
        one, two = await harness.client(), await harness.client()
        key = await take(one, "job", "ada")
        async with one.fences.transaction(key, plenty) as tx:
            await harness.write(tx, 1)
            with suppress(FenceholdError):
                await in_thread(two, key, noting(2), lambda: 0.2)
        assert set(await harness.written()) <= {1, 2}
