"""One claimer of the crowd: claims, completes, fails and gives back until all is done. Also run as a process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from fencehold.ports.backend import Backend
from fencehold.ports.events import Claim, ClaimAsk, ClaimKey, Events, Failure
from fencehold.testing.conformance.processes import Order as OrderOfProcess
from fencehold.testing.conformance.processes import Part
from fencehold.testing.harness import CALL_LIMIT_S

LEASE_S = 60.0
BATCH = 7
PAUSE_S = 0.005


@dataclass(frozen=True)
class Order:
    """`fail_every` n: every n-th event fails its first try. `release_every` n: every n-th is given back once."""

    fail_every: int | None = None
    release_every: int | None = None
    in_order: bool = False
    released: set[int] = field(default_factory=set)

    def is_to_release(self, claim: Claim) -> bool:
        return is_nth(claim, self.release_every) and claim.id not in self.released

    def is_to_fail(self, claim: Claim) -> bool:
        return is_nth(claim, self.fail_every) and claim.attempt == 1


def is_nth(claim: Claim, every: int | None) -> bool:
    return every is not None and claim.payload["n"] % every == 0


async def drain(events: Events, order: Order, who: str, note: Callable[[int], None]) -> None:
    """Work until every event is finished; call `note` with the number of each event that is claimed."""
    finished: list[ClaimKey] = []
    turns = 0
    while True:
        turns += 1
        ask = ClaimAsk(BATCH, f"{who}, turn {turns}", LEASE_S, in_order=order.in_order)
        turn = await events.port.turn(finished, ask, CALL_LIMIT_S)
        assert len(turn.completed) == len(finished), f"{who} lost an event it held"
        for claim in turn.claims:
            note(claim.payload["n"])
        finished = await settled(events, order, turn.claims)
        if not turn.claims:
            seen = await events.admin.stats(CALL_LIMIT_S)
            if seen.pending + seen.processing + seen.failed == 0:
                return
            await asyncio.sleep(PAUSE_S)  # what others hold may come back


async def settled(events: Events, order: Order, claims: list[Claim]) -> list[ClaimKey]:
    """Fail or give back what the order selects; return the keys of the others, which are to be completed."""
    back = [claim.key for claim in claims if order.is_to_release(claim)]
    failed = [claim.key for claim in claims if order.is_to_fail(claim) and claim.key not in back]
    if back:
        order.released.update(key.id for key in back)
        assert len(await events.port.release(back, CALL_LIMIT_S)) == len(back)
    if failed:
        failures = [Failure(key, "the first try", 0.0) for key in failed]
        assert len(await events.port.fail(failures, CALL_LIMIT_S)) == len(failed)
    return [claim.key for claim in claims if claim.key not in back and claim.key not in failed]


async def connected(backend: Backend, order: OrderOfProcess) -> Events:
    events = backend.events(order["table"])
    await events.admin.stats(CALL_LIMIT_S)
    return events


async def work(events: Events, order: OrderOfProcess, who: str) -> list[int]:
    claimed: list[int] = []
    await drain(events, Order(fail_every=order["fail_every"]), who, claimed.append)
    return claimed


PART = Part(connected, work, lambda events: events.close())
