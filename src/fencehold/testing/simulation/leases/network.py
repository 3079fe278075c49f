"""The leases of one process over its line, with what the referee has to know of them."""

from __future__ import annotations

from collections.abc import Sequence

from fencehold.model.election.leases import Ask, Lease, Refusal, TermKey
from fencehold.ports.leases import Answer
from fencehold.testing.simulation.backend import BackendOverLine
from fencehold.testing.simulation.fences import FencesOverLine
from fencehold.testing.simulation.leases.referee import Candidate, LeaseReferee
from fencehold.testing.simulation.leases.store import LeaseStore
from fencehold.testing.simulation.network import Line


class LeasesOverLine:
    def __init__(self, node: Candidate, line: Line, store: LeaseStore, referee: LeaseReferee) -> None:
        self._node, self._line, self._store, self._referee = node, line, store, referee

    async def acquire(self, ask: Ask, limit_s: float) -> Answer:
        node, number = self._node, self._node.next_ask()
        return await self._line.ask(lambda: self._store.acquire(ask, number == node.asks), limit_s)

    async def renew(self, keys: Sequence[TermKey], limit_s: float) -> list[Answer]:
        self._referee.renewing(self._node, keys)
        answers = await self._line.ask(lambda: self._store.renew(keys), limit_s)
        for key, answer in zip(keys, answers, strict=True):
            if isinstance(answer, Refusal):
                self._referee.renewal_refused(key)
        return answers

    async def release(self, keys: Sequence[TermKey], limit_s: float) -> list[Answer]:
        return await self._line.ask(lambda: self._store.release(keys), limit_s)

    async def read(self, names: Sequence[str], limit_s: float) -> dict[str, Lease]:
        return await self._line.ask(lambda: self._store.read(names), limit_s)

    async def list(self, prefix: str, limit_s: float) -> list[Lease]:
        raise NotImplementedError("no part of an election lists")

    async def ask_step_down(self, name: str, epoch: int, limit_s: float) -> Answer:
        raise NotImplementedError("the simulated operator speaks to the store itself")


def backend(node: Candidate, line: Line, store: LeaseStore, referee: LeaseReferee) -> BackendOverLine:
    made = BackendOverLine(store.shelf, line)
    made.leases, made.fences = LeasesOverLine(node, line, store, referee), FencesOverLine(store, line)
    return made
