"""The simulated store: the memory backend's rule table on the virtual clock, with fenced transactions that can be lost.

What reaches it is executed at that instant, whether or not its sender still waits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from fencehold.backends.memory.backend import MemoryFences, MemoryLeases, Shelf
from fencehold.model.election.leases import Ask, Lease, Refusal, TermKey
from fencehold.model.election.places import Place
from fencehold.model.errors import LeaseLost, Unavailable
from fencehold.ports.leases import Answer
from fencehold.testing.simulation.loop import SimulationLoop
from fencehold.testing.simulation.referee import Referee

T = TypeVar("T")

LEASE_NAME = "one"
EPOCH_0_S = 1_700_000_000.0
ORIGIN = Place(timeline=1, system=1)


@dataclass(eq=False)
class OpenTransaction:
    """A fenced transaction: while it is open nobody can take the lease over."""

    key: TermKey
    is_open: bool = True
    timer: asyncio.TimerHandle | None = None


@dataclass(frozen=True)
class Commit:
    """The database after a commit: its row, and how many of the accepted writes are in it."""

    row: Lease | None
    writes: int


class SimulatedStore:
    """One row. `fence` is how writes are checked: "epoch" as the product does it, or broken on purpose."""

    def __init__(self, loop: SimulationLoop, referee: Referee, fence: str = "epoch") -> None:
        self.shelf = Shelf(now_s=lambda: EPOCH_0_S + loop.time(), place=ORIGIN, origin=ORIGIN)
        self.commits = [Commit(None, 0)]
        self.is_down = False
        self._loop = loop
        self._referee = referee
        self._fence = fence
        self._leases = MemoryLeases(self.shelf)
        self._fences = MemoryFences(self.shelf)
        self._open: list[OpenTransaction] = []

    @property
    def row(self) -> Lease | None:
        return self.shelf.rows.get(LEASE_NAME)

    # --- commits, and the loss of them ---

    def _committed(self) -> None:
        self.commits.append(Commit(self.row, self._referee.writes_kept))

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
        answer = _at_once(self._leases.acquire(ask, 0.0))
        if isinstance(answer, Refusal):
            self._referee.acquire_refused(ask.holder_id)
        elif isinstance(answer, Lease) and answer.epoch != (before.epoch if before else 0):
            self._referee.granted(answer, is_latest)
            self._committed()
        return answer

    def renew(self, keys: Sequence[TermKey]) -> list[Answer]:
        answers = _at_once(self._leases.renew(keys, 0.0))
        for answer in answers:
            if isinstance(answer, Lease):
                self._referee.row_lives_until(answer.epoch, self._loop.time() + answer.remaining_s)
                self._committed()
        return answers

    def release(self, keys: Sequence[TermKey]) -> list[Answer]:
        answers = _at_once(self._leases.release(keys, 0.0))
        for answer in answers:
            if isinstance(answer, Lease):
                self._referee.released(answer)
                self._committed()
        return answers

    def read(self, names: Sequence[str]) -> dict[str, Lease]:
        return _at_once(self._leases.read(names, 0.0))

    def ask_step_down(self) -> None:
        if self.row is not None:
            _at_once(self._leases.ask_step_down(LEASE_NAME, self.row.epoch, 0.0))

    def take_away(self) -> None:
        """End the lease although its holder did nothing wrong, as an operator does, or a clock that jumps."""
        row = self.row
        if row is not None and row.expires_at > self.shelf.now():
            self.shelf.rows[LEASE_NAME] = replace(row, expires_at=self.shelf.now())
            self._referee.taken_away(row.epoch)
            self._committed()
            self.shelf.notify("released", LEASE_NAME)

    # --- fenced writes ---

    def write_guarded(self, key: TermKey) -> int:
        """Run one statement with the guard in its WHERE; return the number of changed rows."""
        try:
            self._check(key)
        except LeaseLost as error:
            self._referee.refused(key, str(error))
            return 0
        self._referee.wrote(key)
        self._committed()
        return 1

    def begin(self, key: TermKey) -> OpenTransaction:
        try:
            self._check(key)
        except LeaseLost as error:
            self._referee.refused(key, str(error))
            raise
        transaction = OpenTransaction(key)
        row = self.row
        assert row is not None, "the fence passed only what it found"
        left_s = max(0.0, (row.expires_at - self.shelf.now()).total_seconds())
        transaction.timer = self._loop.call_later(left_s, self._time_out, transaction, context=self._loop.world)
        if self._fence == "epoch":
            self.shelf.fenced[key.name] = self.shelf.fenced.get(key.name, 0) + 1
        self._open.append(transaction)
        return transaction

    def commit(self, transaction: OpenTransaction) -> None:
        if not transaction.is_open:
            raise Unavailable("The store has rolled this transaction back.")
        self._referee.wrote(transaction.key)
        self._committed()
        self._end(transaction)

    def roll_back(self, transaction: OpenTransaction) -> None:
        if transaction.is_open:
            self._end(transaction)

    def restart(self) -> None:
        """Keep the rows, and end all connections with their transactions."""
        for transaction in list(self._open):
            self.roll_back(transaction)

    def _check(self, key: TermKey) -> None:
        match self._fence:
            case "epoch":
                self._fences.fence(None, key)
            case "holder":
                row = self.row
                if row is None or row.holder_id != key.holder_id or row.expires_at <= self.shelf.now():
                    raise LeaseLost("Another holds it.", name=key.name, epoch=key.epoch)
            case _:
                return

    def _time_out(self, transaction: OpenTransaction) -> None:
        # A server that limits a fenced transaction's idle time does the same: a frozen holder cannot block for ever.
        self.roll_back(transaction)

    def _end(self, transaction: OpenTransaction) -> None:
        transaction.is_open = False
        self._open.remove(transaction)
        if transaction.timer is not None:
            transaction.timer.cancel()
        if self._fence == "epoch":
            self.shelf.fenced[transaction.key.name] -= 1


def _at_once(work: Coroutine[Any, Any, T]) -> T:
    """Return the result of a coroutine that waits for nothing."""
    try:
        work.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    raise AssertionError("the memory backend answers without waiting")
