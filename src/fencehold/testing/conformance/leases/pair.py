"""A store of leases and its rule table side by side."""

from __future__ import annotations

from collections.abc import Sequence

from fencehold.model.election.leases import Ask, TermKey, Verb
from fencehold.ports.backend import Backend
from fencehold.ports.leases import Answer
from fencehold.testing.conformance.leases.oracle import Oracle
from fencehold.testing.conformance.oracle import ClientsAndClock, agree
from fencehold.testing.conformance.suite import START
from fencehold.testing.harness import CALL_LIMIT_S, Harness


class LeasePair(ClientsAndClock[Backend]):
    """The leases in the store and in the oracle: every call goes to both, and a difference fails."""

    def __init__(self, harness: Harness, clients: Sequence[Backend]) -> None:
        super().__init__(harness, clients)
        self.oracle = Oracle(harness.applied)

    @classmethod
    async def of(cls, harness: Harness, clients: int = 1) -> LeasePair:
        await harness.set_clock(START)
        return cls(harness, [await harness.client() for _ in range(clients)])

    async def acquire(self, ask: Ask) -> Answer:
        got = await self.client.leases.acquire(ask, CALL_LIMIT_S)
        agree(got, self.oracle.acquire(ask, self.now), f"acquire {ask}")
        return got

    async def use(self, verb: Verb, *keys: TermKey) -> None:
        """Renew, release or ask to step down, with one key per name at most."""
        leases = self.client.leases
        match verb:
            case Verb.RENEW:
                got = await leases.renew(keys, CALL_LIMIT_S)
            case Verb.RELEASE:
                got = await leases.release(keys, CALL_LIMIT_S)
            case _:
                got = [await leases.ask_step_down(key.name, key.epoch, CALL_LIMIT_S) for key in keys]
        for key, answer in zip(keys, got, strict=True):
            agree(answer, self.oracle.change(verb, key, self.now), f"{verb.value} {key}")

    async def check(self, *names: str) -> None:
        """Check that the store has each of these rows exactly as the table, or lacks it as the table does."""
        rows = await self.client.leases.read(names, CALL_LIMIT_S)
        for name in names:
            agree(rows.get(name), self.oracle.view(name, self.now), f"the row of {name}")
