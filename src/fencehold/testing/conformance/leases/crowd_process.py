"""One process of the crowd: its contenders each lead a given number of times; prints the epochs they were granted."""

from __future__ import annotations

import asyncio
import random

from fencehold.model.election.leases import Ask, Lease
from fencehold.model.errors import Unavailable
from fencehold.ports.backend import Backend
from fencehold.testing.conformance.processes import Order, Part
from fencehold.testing.harness import CALL_LIMIT_S

LEASE_S = 60.0
POLL_S_MAX = 0.03


async def contend(backend: Backend, order: Order, who: str) -> list[int]:
    """Lead for `turns` terms and return their epochs; in each, write once under the fence and give the lease back."""
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
