"""The store of the leases: the memory backend's rule table on the virtual clock, and promotions that lose commits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from fencehold.backends.memory.backend import MemoryLeases
from fencehold.model.election.leases import Ask, Lease, Refusal, TermKey
from fencehold.ports.leases import Answer
from fencehold.testing.simulation.fences import LEASE_NAME, FencedStore
from fencehold.testing.simulation.leases.referee import LeaseReferee
from fencehold.testing.simulation.loop import SimulationLoop
from fencehold.testing.simulation.network import at_once


@dataclass(frozen=True)
class Commit:
    """The database after a commit: its row, and how many of the accepted writes are in it."""

    row: Lease | None
    writes: int


class LeaseStore(FencedStore):
    """One row."""

    def __init__(self, loop: SimulationLoop, referee: LeaseReferee) -> None:
        super().__init__(loop, referee)
        self.commits = [Commit(None, 0)]
        self.leases = JudgedLeases(self, referee)
        self._referee = referee

    def committed(self) -> None:
        self.commits.append(Commit(self.row, len(self._referee.kept)))

    def wrote(self, key: TermKey) -> None:
        super().wrote(key)
        self.committed()

    def promote(self, lost: int) -> None:
        """Let a standby take over that lacks the last `lost` commits, on a timeline of its own.

        They may be older than the last promotion: two standbys are promoted in turn, and neither saw the other.
        """
        kept = self.commits[max(0, len(self.commits) - 1 - lost)]
        self.restart()
        timeline = self.shelf.place.timeline or 0
        self.shelf.place = replace(self.shelf.place, timeline=timeline + 1)
        self.shelf.rows.pop(LEASE_NAME, None)
        left_s = 0.0
        if kept.row is not None:
            self.shelf.rows[LEASE_NAME] = kept.row
            left_s = (kept.row.expires_at - self.shelf.now()).total_seconds()
        self.commits.append(kept)
        self._referee.promoted(kept.row, left_s, kept.writes)

    def ask_step_down(self) -> None:
        if self.row is not None:
            at_once(self.leases.ask_step_down(LEASE_NAME, self.row.epoch, 0.0))

    def take_away(self) -> None:
        """End the lease although its holder did nothing wrong, as an operator does, or a clock that jumps."""
        row = self.row
        if row is not None and row.expires_at > self.shelf.now():
            self.shelf.rows[LEASE_NAME] = replace(row, expires_at=self.shelf.now())
            self._referee.taken_away(row.epoch)
            self.committed()
            self.shelf.notify("released", LEASE_NAME)


class JudgedLeases(MemoryLeases):
    """The verbs, with the referee beside every change."""

    def __init__(self, store: LeaseStore, referee: LeaseReferee) -> None:
        super().__init__(store.shelf)
        self._store, self._referee = store, referee

    async def acquire(self, ask: Ask, limit_s: float) -> Answer:
        before = self._store.row
        answer = await super().acquire(ask, limit_s)
        if isinstance(answer, Refusal):
            self._referee.acquire_refused(ask.holder_id)
        elif isinstance(answer, Lease) and answer.epoch != (before.epoch if before else 0):
            self._referee.granted(answer, ask)
            self._store.committed()
        return answer

    async def renew(self, keys: Sequence[TermKey], limit_s: float) -> list[Answer]:
        return self._judged(await super().renew(keys, limit_s), self._referee.renewed)

    async def release(self, keys: Sequence[TermKey], limit_s: float) -> list[Answer]:
        return self._judged(await super().release(keys, limit_s), self._referee.released)

    def _judged(self, answers: list[Answer], judge: Callable[[Lease], None]) -> list[Answer]:
        for lease in answers:
            if isinstance(lease, Lease):
                judge(lease)
                self._store.committed()
        return answers
