"""A writer waits for a row lock until after its lease has expired: either it writes or another takes over, never both.

A condition that only reads (`WHERE EXISTS (SELECT ... FROM leases ...)`) is true when the statement begins and is not
evaluated again after the wait. The last tests show that this suite detects such a condition.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from fencehold.model.election.leases import Lease, TermKey
from fencehold.model.errors import LeaseLost
from fencehold.ports.backend import Backend
from fencehold.testing.conformance.leases.caller_fences import count, guarded, held
from fencehold.testing.conformance.suite import LEASE, START, LeaseTests, ask, begun, needs, plenty, proves, take
from fencehold.testing.harness import CALL_LIMIT_S, COUNT, LEASE_TABLE, Caller, Can, Door, Harness

Write = Callable[[], Coroutine[Any, Any, object]]


@dataclass(frozen=True)
class Outcome:
    was_taken_over: bool
    has_written: bool


async def waited_past_expiry(harness: Harness, other: Backend, name: str, write: Write) -> Outcome:
    """Let `write` wait for a row lock, set the store's clock to the expiry, let another acquire, then free the row."""
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
    async def test_a_guarded_statement_keeps_others_out_while_it_waits(
        self, harness: Harness, one: Backend, two: Backend, door: Door
    ) -> None:
        key = await held(harness, one, door)

        async def write(door: Door = door, key: TermKey = key) -> None:
            await guarded(one, door, key)

        outcome = await waited_past_expiry(harness, two, key.name, write)
        assert outcome == Outcome(was_taken_over=False, has_written=True)
        assert (await take(two, key.name, "bob")).epoch == 2

    async def test_a_fenced_transaction_of_the_caller_keeps_others_out_while_it_waits(
        self, harness: Harness, one: Backend, two: Backend, door: Door
    ) -> None:
        key = await held(harness, one, door)

        async def fence(caller: Caller, key: TermKey = key) -> None:
            await one.fences.fence(caller.target, key)

        outcome = await waited_past_expiry(harness, two, key.name, in_transaction(door, fence))
        assert outcome == Outcome(was_taken_over=False, has_written=True)
        assert (await take(two, key.name, "bob")).epoch == 2

    async def test_a_fenced_transaction_keeps_others_out_while_it_waits(
        self, harness: Harness, one: Backend, two: Backend, key: TermKey
    ) -> None:

        async def write() -> None:
            async with one.fences.transaction(key, plenty) as tx:
                await tx.execute(COUNT)

        outcome = await waited_past_expiry(harness, two, "job", write)
        assert outcome == Outcome(was_taken_over=False, has_written=True)
        assert (await take(two, "job", "bob")).epoch == 2

    async def test_a_condition_that_only_looks_is_told_apart_from_a_fence(
        self, harness: Harness, one: Backend, two: Backend
    ) -> None:
        door = harness.sql.doors()[0]
        key = await held(harness, one, door)
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
        key = await held(harness, one, door)

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
