"""The store of the leases: the memory backend's rule table on the virtual clock, and promotions that lose commits."""

from __future__ import annotations

from collections.abc import Sequence
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
        self._referee = referee
        self._leases = MemoryLeases(self.shelf)

    # --- commits, and the loss of them ---

    def _committed(self) -> None:
        self.commits.append(Commit(self.row, len(self._referee.kept)))

    def wrote(self, key: TermKey) -> None:
        super().wrote(key)
        self._committed()

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

    # --- leases ---

    def acquire(self, ask: Ask, is_latest: bool) -> Answer:
        before = self.row
        answer = at_once(self._leases.acquire(ask, 0.0))
        if isinstance(answer, Refusal):
            self._referee.acquire_refused(ask.holder_id)
        elif isinstance(answer, Lease) and answer.epoch != (before.epoch if before else 0):
            self._referee.granted(answer, is_latest)
            self._committed()
        return answer

    def renew(self, keys: Sequence[TermKey]) -> list[Answer]:
        answers = at_once(self._leases.renew(keys, 0.0))
        for answer in answers:
            if isinstance(answer, Lease):
                self._referee.row_lives_until(answer.epoch, self._loop.time() + answer.remaining_s)
                self._committed()
        return answers

    def release(self, keys: Sequence[TermKey]) -> list[Answer]:
        answers = at_once(self._leases.release(keys, 0.0))
        for answer in answers:
            if isinstance(answer, Lease):
                self._referee.released(answer)
                self._committed()
        return answers

    def read(self, names: Sequence[str]) -> dict[str, Lease]:
        return at_once(self._leases.read(names, 0.0))

    def ask_step_down(self) -> None:
        if self.row is not None:
            at_once(self._leases.ask_step_down(LEASE_NAME, self.row.epoch, 0.0))

    def take_away(self) -> None:
        """End the lease although its holder did nothing wrong, as an operator does, or a clock that jumps."""
        row = self.row
        if row is not None and row.expires_at > self.shelf.now():
            self.shelf.rows[LEASE_NAME] = replace(row, expires_at=self.shelf.now())
            self._referee.taken_away(row.epoch)
            self._committed()
            self.shelf.notify("released", LEASE_NAME)
