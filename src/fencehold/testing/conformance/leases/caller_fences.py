"""The fence in the caller's own transaction, through every kind of connection that is promised to work.

A writer may wait for a row lock until after its lease has expired: then either it writes or another holder takes the
lease over, never both. A condition that only reads (`WHERE EXISTS (SELECT ... FROM leases ...)`) is true when the
statement begins and is not evaluated again after the wait. The last tests of WaitingWriter show that this suite detects
such a condition. A door is one kind of connection, such as that of one driver.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import pytest

from fencehold.model.election.rules import Lease, TermKey
from fencehold.model.errors import LeaseLost
from fencehold.ports.backend import Backend
from fencehold.testing.conformance.leases.fences import cannot_take
from fencehold.testing.conformance.suite import (
    LEASE,
    LEASE_S,
    START,
    LeaseTests,
    SupplyForDoor,
    ask,
    begun,
    client_at_start,
    needs,
    plenty,
    proves,
    refused_with,
    take,
)
from fencehold.testing.harness import CALL_LIMIT_S, COUNT, LEASE_TABLE, READ_COUNT, Caller, Can, Door, Harness

Write = Callable[[], Coroutine[Any, Any, object]]


async def count(harness: Harness) -> int:
    return int((await harness.sql.run(READ_COUNT))[0][0])


async def held(harness: Harness, door: Door) -> TermKey:
    """Acquire a lease that only the tests with this kind of connection use, by a new client, and return its key."""
    return await take(await client_at_start(harness), f"job of {door.title}", "ada")


@proves("fences live.fence.is_holder")
@needs(Can.FENCES, Can.SQL)
class CallerFences(LeaseTests):
    supplies_for_door: ClassVar[Mapping[str, SupplyForDoor]] = {"key": held}

    async def test_a_fenced_write_is_committed_and_a_takeover_waits_for_it(
        self, harness: Harness, one: Backend, two: Backend, door: Door, key: TermKey
    ) -> None:
        before = await count(harness)
        async with begun(door) as caller:
            await one.fences.fence(caller.target, key)
            await caller.execute(COUNT)
            await harness.set_clock(START + LEASE)
            await cannot_take(two, key.name, "bob")
            await caller.commit()
        assert await count(harness) == before + 1
        assert (await take(two, key.name, "bob")).epoch == 2

    async def test_a_refused_fence_undoes_what_was_written_before_it_even_if_the_caller_commits(
        self, harness: Harness, backend: Backend, door: Door, key: TermKey
    ) -> None:
        await harness.set_clock(START + LEASE)
        async with begun(door) as caller:
            await caller.execute(COUNT)
            with pytest.raises(LeaseLost):
                await backend.fences.fence(caller.target, key)
            await caller.commit()
        assert await count(harness) == 0

    async def test_a_stale_token_is_refused(self, harness: Harness, backend: Backend, door: Door, key: TermKey) -> None:
        for holder, epoch in [("bob", 1), ("ada", 2), ("ada", 0)]:
            async with begun(door) as caller:
                with pytest.raises(LeaseLost):
                    await backend.fences.fence(caller.target, replace(key, holder_id=holder, epoch=epoch))
                await caller.rollback()
        assert await count(harness) == 0

    async def test_a_connection_of_another_database_is_refused_by_a_code_of_its_own(
        self, harness: Harness, backend: Backend, other: Harness, door: Door, key: TermKey
    ) -> None:
        """Whatever lease the other database has: none, a lapsed one, or one with an equal name, holder and epoch."""
        await refuses_elsewhere(backend, other, door, key)
        await held(other, door)
        await refuses_elsewhere(backend, other, door, key)
        await other.set_clock(START + LEASE)
        await refuses_elsewhere(backend, other, door, key)

    async def test_a_connection_of_a_database_without_leases_is_refused_in_the_same_words(
        self, harness: Harness, backend: Backend, other: Harness, door: Door
    ) -> None:
        await other.sql.run(f"DROP TABLE IF EXISTS {LEASE_TABLE}")
        await refuses_elsewhere(backend, other, door, await held(harness, door))

    async def test_a_guarded_statement_on_another_database_writes_nothing(
        self, harness: Harness, backend: Backend, other: Harness, door: Door, key: TermKey
    ) -> None:
        """Nothing is written even if the other database has a live lease with an equal name, holder and epoch."""
        theirs = await other.client()
        twin = await held(other, door)
        assert replace(twin, lease_id=key.lease_id) == key
        assert await guarded(backend, door, key) == 0
        assert await guarded(theirs, door, twin) == 1

    async def test_outside_a_transaction_the_fence_is_refused(
        self, harness: Harness, backend: Backend, door: Door, key: TermKey
    ) -> None:
        async with door.open(autocommit=True) as caller:
            with refused_with("fence_outside_transaction"):
                await backend.fences.fence(caller.target, key)

    @pytest.mark.parametrize("target", [None, "postgresql://", object(), 7], ids=repr)
    async def test_what_is_no_connection_is_refused(self, backend: Backend, target: object) -> None:
        with refused_with("bad_connection"):
            await backend.fences.fence(target, TermKey("job", "ada", 1, LEASE_S))

    async def test_a_guarded_statement_writes_until_the_last_tick_and_not_at_expiry(
        self, harness: Harness, backend: Backend, door: Door, key: TermKey
    ) -> None:
        before = await count(harness)
        await harness.set_clock(START + LEASE - harness.traits.tick)
        assert await guarded(backend, door, key) == 1
        await harness.set_clock(START + LEASE)
        assert await guarded(backend, door, key) == 0
        assert await count(harness) == before + 1

    async def test_a_guarded_statement_of_a_stale_token_writes_nothing(
        self, harness: Harness, backend: Backend, door: Door, key: TermKey
    ) -> None:
        for holder, epoch in [("bob", 1), ("ada", 2), ("ada", 0)]:
            assert await guarded(backend, door, replace(key, holder_id=holder, epoch=epoch)) == 0
        assert await count(harness) == 0

    async def test_a_guard_in_autocommit_is_one_statement_and_enough(
        self, harness: Harness, backend: Backend, door: Door, key: TermKey
    ) -> None:
        before = await count(harness)
        async with door.open(autocommit=True) as caller:
            statement, params = guarded_count(backend, door, key)
            assert await caller.execute(statement, params) == 1
        assert await count(harness) == before + 1

    async def test_a_rolled_back_fence_frees_the_lease(
        self, harness: Harness, backend: Backend, door: Door, key: TermKey
    ) -> None:
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


@dataclass(frozen=True)
class Outcome:
    was_taken_over: bool
    has_written: bool


async def waited_past_expiry(harness: Harness, other: Backend, name: str, write: Write) -> Outcome:
    """Let `write` wait for a row lock, set the clock to the lease's expiry, let bob try to acquire, then free the row.

    Returns whether bob got the lease, and whether the write was made.
    """
    before = await count(harness)
    blocker = harness.sql.doors()[0]
    async with blocker.open() as caller:
        await caller.begin()
        await caller.execute(COUNT)
        writer = asyncio.create_task(attempt(write))
        await until_it_waits(harness, writer)
        await harness.set_clock(START + LEASE)
        answer = await other.leases.acquire(ask(name, "bob"), CALL_LIMIT_S)
        await caller.rollback()
        await writer
    return Outcome(isinstance(answer, Lease), await count(harness) > before)


async def keeps_others_out(harness: Harness, other: Backend, name: str, write: Write) -> None:
    """Check that this write, which waits past its lease, is made, and that another holder gets the lease only then."""
    outcome = await waited_past_expiry(harness, other, name, write)
    assert outcome == Outcome(was_taken_over=False, has_written=True)
    assert (await take(other, name, "bob")).epoch == 2


async def attempt(write: Write) -> None:
    try:
        await write()
    except LeaseLost:
        return


async def until_it_waits(harness: Harness, writer: asyncio.Task[None]) -> None:
    waiting = asyncio.create_task(harness.sql.until_one_waits())
    done, _ = await asyncio.wait([waiting, writer], return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    if waiting in done:
        waiting.result()  # raises if the harness cannot see who waits
    if writer in done:
        await writer
        raise AssertionError("the writer did not wait for the row lock")


@proves("fences live.fence.is_holder")
@needs(Can.FENCES, Can.SQL, Can.ROW_LOCKS)
class WaitingWriter(LeaseTests):
    supplies_for_door: ClassVar[Mapping[str, SupplyForDoor]] = {"key": held}

    async def test_a_guarded_statement_keeps_others_out_while_it_waits(
        self, harness: Harness, one: Backend, two: Backend, door: Door, key: TermKey
    ) -> None:

        async def write(door: Door = door, key: TermKey = key) -> None:
            await guarded(one, door, key)

        await keeps_others_out(harness, two, key.name, write)

    async def test_a_fenced_transaction_of_the_caller_keeps_others_out_while_it_waits(
        self, harness: Harness, one: Backend, two: Backend, door: Door, key: TermKey
    ) -> None:

        async def fence(caller: Caller, key: TermKey = key) -> None:
            await one.fences.fence(caller.target, key)

        await keeps_others_out(harness, two, key.name, in_transaction(door, fence))

    async def test_a_fenced_transaction_keeps_others_out_while_it_waits(
        self, harness: Harness, one: Backend, two: Backend, key: TermKey
    ) -> None:

        async def write() -> None:
            async with one.fences.transaction(key, plenty) as tx:
                await tx.execute(COUNT)

        await keeps_others_out(harness, two, key.name, write)

    async def test_a_condition_that_only_looks_is_told_apart_from_a_fence(
        self, harness: Harness, one: Backend, two: Backend
    ) -> None:
        door = harness.sql.doors()[0]
        key = await held(harness, door)
        looks = f"EXISTS (SELECT 1 FROM {LEASE_TABLE} WHERE lease_name = '{key.name}' AND lease_epoch = {key.epoch})"

        async def write() -> None:
            async with begun(door) as caller:
                await caller.execute(f"{COUNT} AND {looks}")
                await caller.commit()

        outcome = await waited_past_expiry(harness, two, key.name, write)
        assert outcome == Outcome(was_taken_over=True, has_written=True), "this suite would not see the leak"

    async def test_a_look_before_the_write_is_told_apart_from_a_fence(
        self, harness: Harness, one: Backend, two: Backend
    ) -> None:
        door = harness.sql.doors()[0]
        key = await held(harness, door)

        async def look(caller: Caller) -> None:
            rows = await one.leases.read([key.name], CALL_LIMIT_S)
            assert rows[key.name].is_live

        outcome = await waited_past_expiry(harness, two, key.name, in_transaction(door, look))
        assert outcome == Outcome(was_taken_over=True, has_written=True), "this suite would not see the leak"


def in_transaction(door: Door, check: Callable[[Caller], Awaitable[None]]) -> Write:
    async def write() -> None:
        async with begun(door) as caller:
            await check(caller)
            await caller.execute(COUNT)
            await caller.commit()

    return write
