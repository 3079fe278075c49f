"""Tests with many clients at once, with exact totals.

No lease is granted twice, epochs are consecutive, and no fenced increment is lost or added.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import random

from fencehold.model.election.rules import Ask, Lease, TermKey
from fencehold.model.errors import Unavailable
from fencehold.ports.backend import Backend
from fencehold.testing.conformance.leases.fences import fenced
from fencehold.testing.conformance.processes import Order, Part, told_by_processes
from fencehold.testing.conformance.suite import LEASE_S, LeaseTests, ask, granted, needs, release, take, unless
from fencehold.testing.harness import ADD_NOTE, CALL_LIMIT_S, COUNT, READ_COUNT, Can, Harness

CONTENDERS = 32
ROUNDS = 6
WRITES = 3
PROCESSES = 8
CONTENDERS_PER_PROCESS = 4
TURNS = 2
POLL_S_MAX = 0.03


class Crowd(LeaseTests):
    async def test_of_32_at_once_exactly_one_is_granted_in_every_round(self, harness: Harness) -> None:
        clients = [await harness.client() for _ in range(CONTENDERS)]
        await harness.shift_clock(dt.timedelta())
        writes = WRITES if harness.can(Can.FENCES) else 0
        for epoch in range(1, ROUNDS + 1):
            asks = [ask("job", f"holder {n}", f"{n} for {epoch}") for n in range(CONTENDERS)]
            answers = await asyncio.gather(*map(try_once, clients, asks))
            winners = [(clients[n], lease) for n, lease in enumerate(answers) if lease is not None]
            assert [lease.epoch for _, lease in winners] == [epoch]
            client, lease = winners[0]
            for _ in range(writes):
                await fenced(harness, client, lease.key(LEASE_S), epoch)
            granted(await release(client, lease.key(LEASE_S)))
        if writes:
            assert await harness.written() == [epoch for epoch in range(1, ROUNDS + 1) for _ in range(writes)]

    @needs(Can.FENCES)
    async def test_stale_and_present_holders_write_at_once_and_only_the_present_one_succeeds(
        self, harness: Harness
    ) -> None:
        clients = [await harness.client() for _ in range(8)]
        await harness.shift_clock(dt.timedelta())
        keys: list[TermKey] = []
        for number, client in enumerate(clients):
            keys.append(await take(client, "job", f"holder {number}"))
            if number < len(clients) - 1:
                await release(client, keys[-1])
        writes = (fenced(harness, client, key, key.epoch) for client, key in zip(clients, keys, strict=True))
        done = await asyncio.gather(*writes, return_exceptions=True)
        assert [outcome is None for outcome in done] == [False] * 7 + [True]
        assert await harness.written() == [len(clients)]


@needs(Can.PROCESSES)
class ProcessCrowd(LeaseTests):
    """Tests with real processes; each contender leads exactly TURNS times, so every total is known beforehand."""

    @needs(Can.FENCES, Can.SQL)
    async def test_processes_take_turns_without_a_double_grant_or_a_lost_write(self, harness: Harness) -> None:
        epochs = await turns_taken(harness, [COUNT, ADD_NOTE])
        assert await harness.written() == epochs, "fenced writes are not in epoch order"
        assert (await harness.sql.run(READ_COUNT))[0][0] == len(epochs)

    @unless(Can.SQL)
    async def test_processes_take_turns_without_a_double_grant(self, harness: Harness) -> None:
        await turns_taken(harness, [])


async def turns_taken(harness: Harness, writes: list[str]) -> list[int]:
    """Let processes take turns as holder of one lease, each running the statements `writes` under the fence.

    Checks that each epoch was granted once, and returns the epochs.
    """
    await harness.shift_clock(dt.timedelta())
    order = {"clients": CONTENDERS_PER_PROCESS, "turns": TURNS, "writes": writes}
    told = await told_by_processes(harness, "leases.crowd:PART", PROCESSES, order)
    epochs = sorted(epoch for line in told for epoch in line)
    turns = PROCESSES * CONTENDERS_PER_PROCESS * TURNS
    assert epochs == list(range(1, turns + 1)), "an epoch was granted twice, or skipped"
    assert (await take(await harness.client(), "job", "the last")).epoch == turns + 1
    return epochs


# One contender, which may be in a process of its own


async def contend(backend: Backend, order: Order, who: str) -> list[int]:
    """Lead for `turns` terms and return their epochs.

    In each term, write once under the fence and give the lease back.
    """
    epochs: list[int] = []
    while len(epochs) < order["turns"]:
        lease = await try_once(backend, Ask("job", who, LEASE_S, f"{who}, turn {len(epochs)}"))
        if lease is None:
            await asyncio.sleep(random.uniform(0.001, POLL_S_MAX))  # as a follower polls; lets the others try
            continue
        key = lease.key(LEASE_S)
        if order["writes"]:
            async with backend.fences.transaction(key, lambda: LEASE_S) as tx:
                for statement in order["writes"]:
                    await tx.execute(statement.format(note=lease.epoch))
        answers = await backend.leases.release([key], CALL_LIMIT_S)
        assert isinstance(answers[0], Lease), f"{who} could not give back {key}: {answers[0]}"
        epochs.append(lease.epoch)
    return epochs


async def try_once(backend: Backend, ask: Ask) -> Lease | None:
    try:
        answer = await backend.leases.acquire(ask, CALL_LIMIT_S)
    except Unavailable as error:
        if error.code != "busy":
            raise
        return None
    return answer if isinstance(answer, Lease) else None


async def connected(backend: Backend, order: Order) -> Backend:
    await backend.open(CALL_LIMIT_S)
    return backend


async def close(backend: Backend) -> None:
    await backend.fences.close()
    await backend.close()


PART = Part(connected, contend, close)
