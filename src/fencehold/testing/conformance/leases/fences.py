"""A fenced transaction commits only while its epoch holds, and keeps every other holder out until it has."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from fencehold.model.election.leases import Busy, TermKey
from fencehold.model.errors import FenceholdError, LeaseLost, Unavailable
from fencehold.ports.backend import Backend
from fencehold.testing.conformance.needs import needs
from fencehold.testing.conformance.suite import (
    LEASE,
    LEASE_S,
    START,
    LeaseTests,
    ask,
    granted,
    plenty,
    release,
    renew,
    take,
)
from fencehold.testing.harness import CALL_LIMIT_S, Can, Harness

TRY_LIMIT_S = 0.3


async def cannot_take(backend: Backend, name: str, holder: str) -> None:
    """Check that an open transaction blocks an acquire: neither granted nor refused, it ends within its limit."""
    try:
        answer = await backend.leases.acquire(ask(name, holder), TRY_LIMIT_S)
    except Unavailable as error:
        if error.code != "busy":
            raise
    else:
        assert isinstance(answer, Busy), answer
    seen = await backend.leases.read([name], CALL_LIMIT_S)
    assert seen[name].holder_id != holder, "a takeover that was no grant has changed the row"


async def is_refused(harness: Harness, backend: Backend, key: TermKey) -> None:
    with pytest.raises(LeaseLost) as caught:
        async with backend.fences.transaction(key, plenty) as tx:
            await harness.write(tx, 666)
    assert (caught.value.name, caught.value.epoch) == (key.name, key.epoch)
    assert 666 not in await harness.written()


async def is_let_in(harness: Harness, backend: Backend, key: TermKey) -> None:
    """Check that the fence lets this holder write; without fences there is nothing to check."""
    if harness.can(Can.FENCES):
        async with backend.fences.transaction(key, plenty) as tx:
            await harness.write(tx, key.epoch)
        assert (await harness.written())[-1] == key.epoch


async def is_kept_out(harness: Harness, backend: Backend, key: TermKey) -> None:
    """Check that the fence refuses this holder; without fences there is nothing to check."""
    if harness.can(Can.FENCES):
        await is_refused(harness, backend, key)


@needs(Can.FENCES)
class Fences(LeaseTests):
    async def test_the_holder_writes_until_the_last_tick_and_not_at_expiry(self, harness: Harness) -> None:
        backend = await harness.client()
        await harness.set_clock(START)
        key = await take(backend, "job", "ada")
        await harness.set_clock(START + LEASE - harness.traits.tick)
        async with backend.fences.transaction(key, plenty) as tx:
            await harness.write(tx, 1)
        await harness.set_clock(START + LEASE)
        await is_refused(harness, backend, key)
        assert await harness.written() == [1]

    async def test_who_does_not_hold_it_is_refused(self, harness: Harness) -> None:
        backend = await harness.client()
        await harness.set_clock(START)
        key = await take(backend, "job", "ada")
        for holder, epoch in [("bob", 1), ("ada", 2), ("ada", 0), ("Ada", 1)]:
            await is_refused(harness, backend, TermKey("job", holder, epoch, LEASE_S))
        await is_refused(harness, backend, TermKey("nobody's", "ada", 1, LEASE_S))
        await release(backend, key)
        await is_refused(harness, backend, key)

    async def test_an_old_token_of_the_present_holder_is_refused(self, harness: Harness) -> None:
        backend = await harness.client()
        await harness.set_clock(START)
        old = await take(backend, "job", "ada", nonce="first")
        await harness.set_clock(START + LEASE)
        new = await take(backend, "job", "ada", nonce="second")
        await is_refused(harness, backend, old)
        async with backend.fences.transaction(new, plenty) as tx:
            await harness.write(tx, new.epoch)
        assert await harness.written() == [2]

    async def test_a_takeover_waits_for_the_open_transaction_and_writes_come_in_epoch_order(
        self, harness: Harness
    ) -> None:
        one, two = await harness.client(), await harness.client()
        await harness.set_clock(START)
        first = await take(one, "job", "ada")
        async with one.fences.transaction(first, plenty) as tx:
            await harness.write(tx, first.epoch)
            await harness.set_clock(START + 2 * LEASE)
            await cannot_take(two, "job", "bob")
        second = await take(two, "job", "bob")
        async with two.fences.transaction(second, plenty) as tx:
            await harness.write(tx, second.epoch)
        await is_refused(harness, one, first)
        assert await harness.written() == [1, 2]

    async def test_an_error_in_the_body_writes_nothing_and_leaves_the_store_in_order(self, harness: Harness) -> None:
        backend = await harness.client()
        await harness.set_clock(START)
        key = await take(backend, "job", "ada")

        async def body() -> None:
            async with backend.fences.transaction(key, plenty) as tx:
                await harness.write(tx, 1)
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await body()
        async with backend.fences.transaction(key, plenty) as tx:
            await harness.write(tx, 2)
        assert await harness.written() == [2]

    async def test_a_cancelled_body_writes_nothing_and_frees_the_lease(self, harness: Harness) -> None:
        one, two = await harness.client(), await harness.client()
        await harness.set_clock(START)
        key = await take(one, "job", "ada")
        inside = asyncio.Event()

        async def body() -> None:
            async with one.fences.transaction(key, plenty) as tx:
                await harness.write(tx, 1)
                inside.set()
                await asyncio.Event().wait()

        task = asyncio.create_task(body())
        await inside.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await harness.set_clock(START + LEASE)
        await taken_in_the_end(two, "job", "bob")
        assert await harness.written() == []

    async def test_many_transactions_of_one_holder_at_once_all_commit(self, harness: Harness) -> None:
        backend = await harness.client()
        key = await take(backend, "job", "ada")

        async def note(number: int) -> None:
            async with backend.fences.transaction(key, plenty) as tx:
                await harness.write(tx, number)

        await asyncio.gather(*(note(number) for number in range(12)))
        assert sorted(await harness.written()) == list(range(12))

    async def test_a_term_that_ends_inside_the_body_does_not_commit(self, harness: Harness) -> None:
        backend = await harness.client()
        key = await take(backend, "job", "ada")
        left_s = [60.0]

        async def body() -> None:
            async with backend.fences.transaction(key, lambda: left_s[0]) as tx:
                await harness.write(tx, 1)
                left_s[0] = 0.0

        with pytest.raises(LeaseLost):
            await body()
        assert await harness.written() == []

    async def test_a_failed_statement_that_was_passed_over_is_no_false_yes(self, harness: Harness) -> None:
        """Either the rest is committed, or the block raises."""
        backend = await harness.client()
        key = await take(backend, "job", "ada")

        async def body() -> None:
            async with backend.fences.transaction(key, plenty) as tx:
                await harness.write(tx, 1)
                with suppress(Exception):
                    await tx.execute("INSERT INTO no_such_table VALUES (1)")

        try:
            await body()
        except FenceholdError:
            assert await harness.written() == []
        else:
            assert await harness.written() == [1], "the block ended well and nothing was written"


@needs(Can.FENCES, Can.ROW_LOCKS)
class PassingRenewals(LeaseTests):
    """For a store with more than one writer: an open fenced transaction blocks takeovers and nothing else."""

    async def test_a_renewal_and_a_release_pass_an_open_transaction_and_a_takeover_does_not(
        self, harness: Harness
    ) -> None:
        one, two = await harness.client(), await harness.client()
        await harness.set_clock(START)
        key = await take(one, "job", "ada")
        async with one.fences.transaction(key, plenty) as tx:
            await harness.write(tx, 1)
            await harness.set_clock(START + LEASE / 2)
            assert granted(await renew(one, key)).expires_at == START + LEASE * 1.5
            granted(await release(one, key))
            await cannot_take(two, "job", "bob")
        assert (await take(two, "job", "bob")).epoch == 2
        assert await harness.written() == [1]

    async def test_other_leases_are_free_of_an_open_transaction(self, harness: Harness) -> None:
        one, two = await harness.client(), await harness.client()
        key = await take(one, "job", "ada")
        async with one.fences.transaction(key, plenty):
            other = await take(two, "other", "bob")
            granted(await renew(two, other))


async def taken_in_the_end(backend: Backend, name: str, holder: str) -> None:
    """Acquire the lease, with repeats: the server notices a dropped connection late, and answers Busy until then."""
    async with asyncio.timeout(20):
        answer = await backend.leases.acquire(ask(name, holder), 5.0)
        while isinstance(answer, Busy):
            await asyncio.sleep(0.01)
            answer = await backend.leases.acquire(ask(name, holder), 5.0)
    granted(answer)
