"""Many clients at once, with exact totals: no double grant, consecutive epochs, no fenced increment lost or added."""

from __future__ import annotations

import asyncio
import datetime as dt

from fencehold.model.election.leases import TermKey
from fencehold.testing.conformance.leases.crowd_process import try_once
from fencehold.testing.conformance.leases.fences import fenced
from fencehold.testing.conformance.processes import told_by_processes
from fencehold.testing.conformance.suite import LEASE_S, LeaseTests, ask, granted, needs, release, take, unless
from fencehold.testing.harness import ADD_NOTE, COUNT, READ_COUNT, Can, Harness

CONTENDERS = 32
ROUNDS = 6
WRITES = 3
PROCESSES = 8
CONTENDERS_PER_PROCESS = 4
TURNS = 2


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
    """Real processes; each contender leads exactly TURNS times, so every total is known beforehand."""

    @needs(Can.FENCES, Can.SQL)
    async def test_processes_take_turns_without_a_double_grant_or_a_lost_write(self, harness: Harness) -> None:
        epochs = await turns_taken(harness, [COUNT, ADD_NOTE])
        assert await harness.written() == epochs, "fenced writes are not in epoch order"
        assert (await harness.sql.run(READ_COUNT))[0][0] == len(epochs)

    @unless(Can.SQL)
    async def test_processes_take_turns_without_a_double_grant(self, harness: Harness) -> None:
        await turns_taken(harness, [])


async def turns_taken(harness: Harness, writes: list[str]) -> list[int]:
    """Let processes take turns, each writing this under the fence; return the epochs, each granted once."""
    await harness.shift_clock(dt.timedelta())
    order = {"clients": CONTENDERS_PER_PROCESS, "turns": TURNS, "writes": writes}
    told = await told_by_processes(harness, "leases.crowd_process:PART", PROCESSES, order)
    epochs = sorted(epoch for line in told for epoch in line)
    turns = PROCESSES * CONTENDERS_PER_PROCESS * TURNS
    assert epochs == list(range(1, turns + 1)), "an epoch was granted twice, or skipped"
    assert (await take(await harness.client(), "job", "the last")).epoch == turns + 1
    return epochs
