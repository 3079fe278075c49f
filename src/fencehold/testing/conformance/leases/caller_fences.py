"""The fence in the caller's own transaction, through every kind of connection that is promised to work."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fencehold.model.election.leases import TermKey
from fencehold.model.errors import LeaseLost
from fencehold.ports.backend import Backend
from fencehold.testing.conformance.leases.fences import cannot_take
from fencehold.testing.conformance.suite import (
    LEASE,
    LEASE_S,
    START,
    LeaseTests,
    begun,
    needs,
    proves,
    refused_with,
    take,
)
from fencehold.testing.harness import COUNT, LEASE_TABLE, READ_COUNT, Can, Door, Harness


async def count(harness: Harness) -> int:
    return int((await harness.sql.run(READ_COUNT))[0][0])


async def held(harness: Harness, backend: Backend, door: Door) -> TermKey:
    """Acquire a lease that only this door uses, and return its key."""
    await harness.set_clock(START)
    return await take(backend, f"job of {door.title}", "ada")


@proves("fences live.fence.is_holder")
@needs(Can.FENCES, Can.SQL)
class CallerFences(LeaseTests):
    async def test_a_fenced_write_is_committed_and_a_takeover_waits_for_it(
        self, harness: Harness, one: Backend, two: Backend, door: Door
    ) -> None:
        before = await count(harness)
        key = await held(harness, one, door)
        async with begun(door) as caller:
            await one.fences.fence(caller.target, key)
            await caller.execute(COUNT)
            await harness.set_clock(START + LEASE)
            await cannot_take(two, key.name, "bob")
            await caller.commit()
        assert await count(harness) == before + 1
        assert (await take(two, key.name, "bob")).epoch == 2

    async def test_a_refused_fence_undoes_what_was_written_before_it_even_if_the_caller_commits(
        self, harness: Harness, backend: Backend, door: Door
    ) -> None:
        key = await held(harness, backend, door)
        await harness.set_clock(START + LEASE)
        async with begun(door) as caller:
            await caller.execute(COUNT)
            with pytest.raises(LeaseLost):
                await backend.fences.fence(caller.target, key)
            await caller.commit()
        assert await count(harness) == 0

    async def test_a_stale_token_is_refused(self, harness: Harness, backend: Backend, door: Door) -> None:
        key = await held(harness, backend, door)
        for holder, epoch in [("bob", 1), ("ada", 2), ("ada", 0)]:
            async with begun(door) as caller:
                with pytest.raises(LeaseLost):
                    await backend.fences.fence(caller.target, replace(key, holder_id=holder, epoch=epoch))
                await caller.rollback()
        assert await count(harness) == 0

    async def test_a_connection_of_another_database_is_refused_by_a_code_of_its_own(
        self, harness: Harness, backend: Backend, other: Harness, door: Door
    ) -> None:
        """Whatever lease is there: none, a lapsed one, or one with an equal name, holder and epoch."""
        key = await held(harness, backend, door)
        await refuses_elsewhere(backend, other, door, key)
        await held(other, await other.client(), door)
        await refuses_elsewhere(backend, other, door, key)
        await other.set_clock(START + LEASE)
        await refuses_elsewhere(backend, other, door, key)

    async def test_a_connection_of_a_database_without_leases_is_refused_in_the_same_words(
        self, harness: Harness, backend: Backend, other: Harness, door: Door
    ) -> None:
        await other.sql.run(f"DROP TABLE IF EXISTS {LEASE_TABLE}")
        await refuses_elsewhere(backend, other, door, await held(harness, backend, door))

    async def test_a_guarded_statement_on_another_database_writes_nothing(
        self, harness: Harness, backend: Backend, other: Harness, door: Door
    ) -> None:
        """Not even where a lease with an equal name, holder and epoch is held."""
        theirs = await other.client()
        key, twin = await held(harness, backend, door), await held(other, theirs, door)
        assert replace(twin, lease_id=key.lease_id) == key
        assert await guarded(backend, door, key) == 0
        assert await guarded(theirs, door, twin) == 1

    async def test_outside_a_transaction_the_fence_is_refused(
        self, harness: Harness, backend: Backend, door: Door
    ) -> None:
        key = await held(harness, backend, door)
        async with door.open(autocommit=True) as caller:
            with refused_with("fence_outside_transaction"):
                await backend.fences.fence(caller.target, key)

    @pytest.mark.parametrize("target", [None, "postgresql://", object(), 7], ids=repr)
    async def test_what_is_no_connection_is_refused(self, backend: Backend, target: object) -> None:
        with refused_with("bad_connection"):
            await backend.fences.fence(target, TermKey("job", "ada", 1, LEASE_S))

    async def test_a_guarded_statement_writes_until_the_last_tick_and_not_at_expiry(
        self, harness: Harness, backend: Backend, door: Door
    ) -> None:
        before = await count(harness)
        key = await held(harness, backend, door)
        await harness.set_clock(START + LEASE - harness.traits.tick)
        assert await guarded(backend, door, key) == 1
        await harness.set_clock(START + LEASE)
        assert await guarded(backend, door, key) == 0
        assert await count(harness) == before + 1

    async def test_a_guarded_statement_of_a_stale_token_writes_nothing(
        self, harness: Harness, backend: Backend, door: Door
    ) -> None:
        key = await held(harness, backend, door)
        for holder, epoch in [("bob", 1), ("ada", 2), ("ada", 0)]:
            assert await guarded(backend, door, replace(key, holder_id=holder, epoch=epoch)) == 0
        assert await count(harness) == 0

    async def test_a_guard_in_autocommit_is_one_statement_and_enough(
        self, harness: Harness, backend: Backend, door: Door
    ) -> None:
        before = await count(harness)
        key = await held(harness, backend, door)
        async with door.open(autocommit=True) as caller:
            statement, params = guarded_count(backend, door, key)
            assert await caller.execute(statement, params) == 1
        assert await count(harness) == before + 1

    async def test_a_rolled_back_fence_frees_the_lease(self, harness: Harness, backend: Backend, door: Door) -> None:
        key = await held(harness, backend, door)
        async with begun(door) as caller:
            await backend.fences.fence(caller.target, key)
            await caller.execute(COUNT)
            await caller.rollback()
        await harness.set_clock(START + LEASE)
        assert (await take(backend, key.name, "bob")).epoch == 2
        assert await count(harness) == 0


async def refuses_elsewhere(backend: Backend, other: Harness, door: Door, key: TermKey) -> None:
    async with begun(door) as caller:
        await caller.execute(COUNT)
        with refused_with("wrong_store"):
            await backend.fences.fence(caller.target, key)
        await caller.commit()
    assert await count(other) == 0, "the transaction could not commit"


def guarded_count(backend: Backend, door: Door, key: TermKey) -> tuple[str, dict[str, object]]:
    guard = backend.fences.guard(key)
    return f"{COUNT} AND {guard.text if door.takes_text else guard.sql}", dict(guard.params)


async def guarded(backend: Backend, door: Door, key: TermKey) -> int:
    async with begun(door) as caller:
        changed = await caller.execute(*guarded_count(backend, door, key))
        await caller.commit()
        return changed
