"""Tests that a fenced transaction commits only while its epoch holds, and keeps other holders out until it ends."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import ClassVar

import pytest

from fencehold.model.election.rules import Busy, TermKey
from fencehold.model.errors import FenceholdError, LeaseLost, Unavailable
from fencehold.ports.backend import Backend
from fencehold.ports.fence import RemainingS
from fencehold.testing.conformance.suite import (
    LEASE,
    LEASE_S,
    START,
    LeaseTests,
    ask,
    granted,
    needs,
    plenty,
    proves,
    release,
    renew,
    take,
)
from fencehold.testing.harness import ADD_NOTE, CALL_LIMIT_S, Can, Harness

TRY_LIMIT_S = 0.3


async def cannot_take(backend: Backend, name: str, holder: str) -> None:
    """Check that an open transaction blocks an acquire: the call ends within its limit, neither granted nor refused."""
    try:
        answer = await backend.leases.acquire(ask(name, holder), TRY_LIMIT_S)
    except Unavailable as error:
        if error.code != "busy":
            raise
    else:
        assert isinstance(answer, Busy), answer
    seen = await backend.leases.read([name], CALL_LIMIT_S)
    assert seen[name].holder_id != holder, "a takeover that was no grant has changed the row"


#: A step of a fenced transaction: a note (int) that is written, a statement (str) whose error is ignored, or a function
#: that is called, and awaited if it returns a coroutine.
Step = int | str | Callable[[], object]
Fenced = Callable[..., Awaitable[None]]


async def fenced(
    harness: Harness, backend: Backend, key: TermKey, *steps: Step, remaining_s: RemainingS = plenty
) -> None:
    """Run a fenced transaction that takes these steps: numbers are written, statements run, functions called."""
    async with backend.fences.transaction(key, remaining_s) as tx:
        for step in steps:
            match step:
                case int():
                    await harness.write(tx, step)
                case str():
                    with suppress(Exception):
                        await tx.execute(step)
                case _:
                    meanwhile = step()
                    if inspect.iscoroutine(meanwhile):
                        await meanwhile


async def is_refused(harness: Harness, backend: Backend, key: TermKey, run: Fenced = fenced) -> None:
    with pytest.raises(LeaseLost) as caught:
        await run(harness, backend, key, 666)
    assert (caught.value.name, caught.value.epoch) == (key.name, key.epoch)
    assert 666 not in await harness.written()


async def is_let_in(harness: Harness, backend: Backend, key: TermKey) -> None:
    """Check that the fence lets this holder write. Does nothing for a store without fences."""
    if harness.can(Can.FENCES):
        await fenced(harness, backend, key, key.epoch)
        assert (await harness.written())[-1] == key.epoch


async def is_kept_out(harness: Harness, backend: Backend, key: TermKey) -> None:
    """Check that the fence refuses this holder. Does nothing for a store without fences."""
    if harness.can(Can.FENCES):
        await is_refused(harness, backend, key)


@proves("fences live.fence.is_holder")
@needs(Can.FENCES)
class FencedTransactions(LeaseTests):
    """Tests of fenced transactions that hold for a program with an event loop and for one without."""

    fenced: ClassVar[Fenced]

    async def test_the_holder_writes_until_the_last_tick_and_not_at_expiry(
        self, harness: Harness, backend: Backend, key: TermKey
    ) -> None:
        await harness.set_clock(START + LEASE - harness.traits.tick)
        await self.fenced(harness, backend, key, 1)
        await harness.set_clock(START + LEASE)
        await is_refused(harness, backend, key, self.fenced)
        assert await harness.written() == [1]

    async def test_who_does_not_hold_it_is_refused(self, harness: Harness, backend: Backend, key: TermKey) -> None:
        for holder, epoch in [("bob", 1), ("ada", 2), ("ada", 0), ("Ada", 1)]:
            await is_refused(harness, backend, TermKey("job", holder, epoch, LEASE_S), self.fenced)
        await is_refused(harness, backend, TermKey("nobody's", "ada", 1, LEASE_S), self.fenced)
        await release(backend, key)
        await is_refused(harness, backend, key, self.fenced)

    async def test_a_takeover_waits_for_the_open_transaction_and_writes_come_in_epoch_order(
        self, harness: Harness, one: Backend, two: Backend, key: TermKey
    ) -> None:
        async def lapsed_and_held() -> None:
            await harness.set_clock(START + LEASE)
            await cannot_take(two, "job", "bob")

        await self.fenced(harness, one, key, 1, lapsed_and_held)
        await self.fenced(harness, two, await take(two, "job", "bob"), 2)
        await is_refused(harness, one, key, self.fenced)
        assert await harness.written() == [1, 2]

    async def test_an_error_in_the_body_writes_nothing_and_leaves_the_store_in_order(
        self, harness: Harness, backend: Backend, key: TermKey
    ) -> None:
        def fails() -> None:
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await self.fenced(harness, backend, key, 1, fails)
        await self.fenced(harness, backend, key, 2)
        assert await harness.written() == [2]

    async def test_a_term_that_ends_inside_the_body_does_not_commit(
        self, harness: Harness, backend: Backend, key: TermKey
    ) -> None:
        left_s = [60.0]
        for _ in range(2):  # the second time, the term is over before the body
            with pytest.raises(LeaseLost):
                await self.fenced(harness, backend, key, 1, left_s.clear, remaining_s=lambda: sum(left_s))
        assert await harness.written() == []

    async def test_a_failed_statement_that_was_passed_over_is_no_false_yes(
        self, harness: Harness, backend: Backend, key: TermKey
    ) -> None:
        """Either what the other statements wrote is committed, or the block raises."""
        try:
            await self.fenced(harness, backend, key, 1, "INSERT INTO no_such_table VALUES (1)")
        except FenceholdError:
            assert await harness.written() == []
        else:
            assert await harness.written() == [1], "the block ended well and nothing was written"


class Fences(FencedTransactions):
    fenced = staticmethod(fenced)

    async def test_an_old_token_of_the_present_holder_is_refused(self, harness: Harness, backend: Backend) -> None:
        old = await take(backend, "job", "ada", nonce="first")
        await harness.set_clock(START + LEASE)
        new = await take(backend, "job", "ada", nonce="second")
        await is_refused(harness, backend, old)
        await fenced(harness, backend, new, new.epoch)
        assert await harness.written() == [2]

    async def test_a_cancelled_body_writes_nothing_and_frees_the_lease(
        self, harness: Harness, one: Backend, two: Backend, key: TermKey
    ) -> None:
        inside = asyncio.Event()

        async def hangs() -> None:
            inside.set()
            await asyncio.Event().wait()

        task = asyncio.create_task(fenced(harness, one, key, 1, hangs))
        await inside.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await harness.set_clock(START + LEASE)
        await taken_in_the_end(two, "job", "bob")
        assert await harness.written() == []

    async def test_many_transactions_of_one_holder_at_once_all_commit(
        self, harness: Harness, backend: Backend, key: TermKey
    ) -> None:
        await asyncio.gather(*(fenced(harness, backend, key, number) for number in range(12)))
        assert sorted(await harness.written()) == list(range(12))


@needs(Can.FENCES, Can.ROW_LOCKS)
class PassingRenewals(LeaseTests):
    """Tests for a store with more than one writer: an open fenced transaction blocks takeovers and nothing else."""

    async def test_a_renewal_and_a_release_pass_an_open_transaction_and_a_takeover_does_not(
        self, harness: Harness, one: Backend, two: Backend, key: TermKey
    ) -> None:

        async def meanwhile() -> None:
            await harness.set_clock(START + LEASE / 2)
            assert granted(await renew(one, key)).expires_at == START + LEASE * 1.5
            granted(await release(one, key))
            await cannot_take(two, "job", "bob")

        await fenced(harness, one, key, 1, meanwhile)
        assert (await take(two, "job", "bob")).epoch == 2
        assert await harness.written() == [1]

    async def test_other_leases_are_free_of_an_open_transaction(self, one: Backend, two: Backend, key: TermKey) -> None:
        async with one.fences.transaction(key, plenty):
            other = await take(two, "other", "bob")
            granted(await renew(two, other))


async def in_thread(
    harness: Harness, backend: Backend, key: TermKey, *steps: Step, remaining_s: RemainingS = plenty
) -> None:
    """Run a fenced transaction of these steps in a thread, as a program without an event loop does."""
    loop = asyncio.get_running_loop()

    def run() -> None:
        with backend.fences.transaction_sync(key, remaining_s) as tx:
            for step in steps:
                match step:
                    case int():
                        tx.execute(ADD_NOTE.format(note=step))
                    case str():
                        with suppress(harness.sql.error):
                            tx.execute(step)
                    case _:
                        meanwhile = step()
                        if inspect.iscoroutine(meanwhile):
                            asyncio.run_coroutine_threadsafe(meanwhile, loop).result(CALL_LIMIT_S)

    await asyncio.to_thread(run)


@needs(Can.SQL)
class SyncFences(FencedTransactions):
    fenced = staticmethod(in_thread)

    async def test_an_obstructed_store_is_told_in_the_library_s_own_words(
        self, harness: Harness, one: Backend, two: Backend, key: TermKey
    ) -> None:
        """If another transaction blocks this one, our own error is raised, not the driver's.

        Only the caller's own statements raise errors of the driver.
        """

        async def blocked() -> None:
            with suppress(FenceholdError):
                await in_thread(harness, two, key, 2, remaining_s=lambda: 0.2)

        await fenced(harness, one, key, 1, blocked)
        assert set(await harness.written()) <= {1, 2}


async def taken_in_the_end(backend: Backend, name: str, holder: str) -> None:
    """Acquire the lease, with repeats while the answer is Busy: the server notices a dropped connection late."""
    async with asyncio.timeout(20):
        answer = await backend.leases.acquire(ask(name, holder), 5.0)
        while isinstance(answer, Busy):
            await asyncio.sleep(0.01)
            answer = await backend.leases.acquire(ask(name, holder), 5.0)
    granted(answer)
