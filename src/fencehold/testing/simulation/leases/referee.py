"""Judges the leases of a simulated run.

Safety, at every instant at which anything happened: a term that is valid for its process is the store's live row, no
two terms are valid at once, and no term becomes valid again; a refused renewal ends its term. A lease is not given back
while a body (the user's code inside the term) still runs. No process sends a storm of requests. At the end,
`fencehold.testing.history` judges grants, beliefs and accepted writes once more.

Liveness: a body ends soon after its term; a process with a blocked event loop does not stay leader; a process finds its
own grant again when the answer was lost. The schedule itself judges the other promises about time, once all faults have
ended.

After the referee, this file has the store of the leases, which reports every change to the referee, and can lose
commits when a standby is promoted.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from fencehold.backends.memory.backend import MemoryLeases
from fencehold.model.election.rules import Ask, Lease, Refusal, TermKey
from fencehold.model.election.settings import LeaderSettings
from fencehold.ports.leases import Answer
from fencehold.runtime.election.keeper import HeldLease
from fencehold.runtime.election.term import Term
from fencehold.testing.history import Believed, Event, Granted, check
from fencehold.testing.simulation.fences import LEASE_NAME, FencedStore, FenceReferee
from fencehold.testing.simulation.loop import SimulationLoop
from fencehold.testing.simulation.network import at_once
from fencehold.testing.simulation.process import StoreProcess
from fencehold.testing.simulation.referee import BODY_STOP_S_MAX, ROUNDING_S, SLACK_S, SMALL_DRIFT, Trace

STORM_REFUSALS = 15


class Candidate(StoreProcess):
    """A simulated process that wants to lead: the attributes that the referee reads."""

    bodies: dict[int, int]
    settings: LeaderSettings
    asked: Ask | None


@dataclass(eq=False)
class Belief:
    """A term as its process believes it: valid from `start_s` until `until_s`, in true time, as last seen."""

    node: Candidate
    term: Term
    held: HeldLease  # the lease that the term reads; read directly here, because it is read at every instant
    start_s: float
    until_s: float


@dataclass(eq=False)
class Orphan:
    """A grant whose answer may be lost: its process does not know of it yet, and must find it by `due_s`."""

    node: Candidate
    epoch: int
    since_s: float
    due_s: float


class LeaseReferee(FenceReferee):
    def __init__(self, loop: SimulationLoop, trace: Trace) -> None:
        super().__init__(loop, trace)
        self.nodes: dict[str, Candidate] = {}
        self.history: list[Event] = []
        self.refused_epochs: set[int] = set()  # by a renewal, once the refusal has arrived
        self.believed: list[Belief] = []
        self._over: dict[str, Belief] = {}
        self._leaving: list[tuple[Belief, float]] = []
        self._taken: dict[int, float] = {}
        self._row_epoch = 0
        self._row_until_s = 0.0
        self._granted_at_s: dict[int, float] = {}
        self._orphan: Orphan | None = None
        self._refused_s: defaultdict[str, deque[float]] = defaultdict(lambda: deque(maxlen=STORM_REFUSALS))
        self._newest_term: dict[str, int] = {}

    # --- what the store executed ---

    def granted(self, lease: Lease, ask: Ask) -> None:
        now_s = self.loop.time()
        self.history.append(Granted(lease.name, lease.holder_id, lease.epoch, now_s))
        self.trace.note("store", f"grants epoch {lease.epoch} to {lease.holder_id}")
        self.row_lives_until(lease.epoch, now_s + lease.remaining_s)
        node = self.nodes[lease.holder_id]
        self._granted_at_s[lease.epoch] = node.keeper.running_s()
        # The process gives up waiting, backs off once and asks again: by then the nonce must have shown it the grant.
        due_s = now_s + 2 * node.settings.call_limit_s + node.settings.acquire_every_s + SLACK_S
        self._orphan = Orphan(node, lease.epoch, now_s, due_s) if ask is node.asked else None

    def renewed(self, lease: Lease) -> None:
        self.row_lives_until(lease.epoch, self.loop.time() + lease.remaining_s)

    def acquire_refused(self, holder_id: str) -> None:
        """Record a refused acquire.

        Fail if a candidate was refused too often within a second: such requests are only load.
        """
        times_s = self._refused_s[holder_id]
        times_s.append(self.loop.time())
        if len(times_s) == STORM_REFUSALS and times_s[-1] - times_s[0] < 1.0:
            self.fail(f"{holder_id} was refused {STORM_REFUSALS} times within a second")

    def granted_now(self, node: Candidate) -> bool:
        return self._orphan is not None and (self._orphan.node, self._orphan.since_s) == (node, self.loop.time())

    def row_lives_until(self, epoch: int, until_s: float) -> None:
        self._row_epoch, self._row_until_s = epoch, until_s

    def released(self, lease: Lease) -> None:
        now_s = self.loop.time()
        self.trace.note("store", f"epoch {lease.epoch} is given back by {lease.holder_id}")
        self._row_until_s = now_s
        node = self.nodes[lease.holder_id]
        belief = next(
            (b for b in (*self.believed, self._over.get(node.name)) if b and b.term.epoch == lease.epoch), None
        )
        if belief is not None and node.bodies.get(lease.epoch) and now_s < belief.until_s - ROUNDING_S:
            self.fail(f"{node.name} gave epoch {lease.epoch} back while a body of that term was still running")

    def taken_away(self, epoch: int) -> None:
        self._taken.setdefault(epoch, self.loop.time())  # a promotion may have taken it away before
        self._row_until_s = self.loop.time()
        self.trace.note("store", f"epoch {epoch} is taken away by the operator")

    def promoted(self, row: Lease | None, left_s: float, writes: int) -> None:
        """Record that a standby was promoted: every earlier term may be lost without its process knowing.

        `row` is the standby's row (None: it has none), whose lease lasts `left_s` more seconds; `writes` is how many
        accepted writes the standby has. Lost writes are no violation. Grants are judged even if the standby has lost
        them: a process that got its answer may have passed the epoch on to others.
        """
        now_s = self.loop.time()
        self.trace.note("store", f"is replaced by a standby, whose row is {row}")
        for epoch in self._granted_at_s:
            self._taken.setdefault(epoch, now_s)
        del self.kept[writes:]
        self._orphan = None
        self.row_lives_until(row.epoch if row else 0, now_s + left_s)

    # --- what a process did ---

    def renewing(self, node: Candidate, keys: Sequence[TermKey]) -> None:
        """Judge a renewal when it is sent, on the keeper's thread: not long after the user's event loop was blocked."""
        if node.blocked_at_s is None:
            return
        since_s = max(node.blocked_at_s, *(self._granted_at_s.get(key.epoch, 0.0) for key in keys))
        silent_s = node.keeper.running_s() - since_s
        settings = node.settings
        rounds_s = settings.stall_limit_s + settings.renew_every_s + settings.call_limit_s
        self.must(
            silent_s <= rounds_s * SMALL_DRIFT + SLACK_S,
            f"{node.name} renews although its event loop has been blocked for {silent_s:.2f} s",
        )

    def leads(self, node: Candidate, term: Term) -> None:
        """Record that a term begins. Fail unless its epoch is above those of the process's earlier terms.

        Called on the user's thread.
        """
        now_s = self.loop.time()
        self.counts["terms"] += 1
        self._close_ended(now_s)
        last = self._newest_term.get(node.name, 0)
        self.must(term.epoch > last, f"{node.name} begins a term with epoch {term.epoch} after epoch {last}")
        self._newest_term[node.name] = term.epoch
        self.believed.append(Belief(node, term, term._held, now_s, now_s + term.remaining_s / node.clock.rate))
        if self._orphan is not None and self._orphan.epoch == term.epoch:
            self._orphan = None

    # --- whenever something happened and all of it is done, before time moves on ---

    def judge(self, now_s: float) -> None:
        if self.believed:
            self._judge_believed(now_s)
        for belief in self._over.values():
            if belief.held.remaining_s > 0:
                self.fail(f"{belief.node.name}'s epoch {belief.term.epoch} was over and is valid again")
        if self._leaving:
            self._judge_leaving()
        if self._orphan is not None:
            self._judge_orphan(self._orphan, now_s)

    def _judge_believed(self, now_s: float) -> None:
        ended = False
        for belief in self.believed:
            left_s = belief.held.remaining_s
            if left_s > 0:
                belief.until_s = now_s + left_s / belief.node.clock.rate
                self._judge_valid(belief)
            else:
                ended = True
        if ended:
            self._close_ended(now_s)
        if len(self.believed) > 1:
            self._judge_overlap()

    def _judge_valid(self, belief: Belief) -> None:
        """Check a valid term: it was not refused, and the store's lease lasts as long as the process trusts its own.

        To compare only the present instant is not enough: a process that is paused now will not learn that its term is
        over.
        """
        epoch = belief.term.epoch
        if epoch in self.refused_epochs:
            self.fail(f"{belief.node.name}'s epoch {epoch} is still valid after its renewal was refused")
        if epoch in self._taken:
            return
        if epoch != self._row_epoch or belief.until_s > self._row_until_s + ROUNDING_S:
            self.fail(
                f"{belief.node.name}'s epoch {epoch} is valid until {belief.until_s:.3f}, but the store's row is epoch "
                f"{self._row_epoch} until {self._row_until_s:.3f}"
            )

    def _judge_overlap(self) -> None:
        valid = [b for b in self.believed if b.term.epoch not in self._taken]
        if len(valid) > 1:
            both = " and ".join(f"{b.node.name} epoch {b.term.epoch}" for b in valid)
            self.fail(f"two terms are valid at once: {both}")

    def _close_ended(self, now_s: float) -> None:
        for belief in [b for b in self.believed if not b.term.is_valid]:
            self.believed.remove(belief)
            self._over[belief.node.name] = belief
            term, why = belief.term, belief.term.ended_because or "its deadline passed"
            self.trace.note(belief.node.name, f"epoch {term.epoch} is no longer valid: {why}")
            # Believed until the deadline last seen, even if this turn of the loop notices the end later.
            end_s = max(belief.start_s, min(now_s, belief.until_s, self._taken.get(term.epoch, now_s)))
            self.counts["seconds led"] += end_s - belief.start_s
            self.history.append(Believed(term.name, term.holder_id, term.epoch, belief.start_s, end_s))
            if belief.node.bodies.get(term.epoch):
                self._leaving.append((belief, belief.node.user.running_s()))

    def _judge_leaving(self) -> None:
        for entry in list(self._leaving):
            belief, since_s = entry
            if not belief.node.bodies.get(belief.term.epoch):
                self._leaving.remove(entry)
            elif belief.node.user.running_s() - since_s > BODY_STOP_S_MAX + SLACK_S:
                self.fail(f"{belief.node.name}'s body of epoch {belief.term.epoch} outlived its term")

    def _judge_orphan(self, orphan: Orphan, now_s: float) -> None:
        if self._row_epoch != orphan.epoch or now_s >= self._row_until_s or orphan.node.disturbed_s >= orphan.since_s:
            self._orphan = None
        elif now_s > orphan.due_s:
            self.fail(
                f"{orphan.node.name} was granted epoch {orphan.epoch} {now_s - orphan.since_s:.2f} s ago, "
                f"is undisturbed, and still does not know"
            )

    # --- the verdict ---

    def judge_end(self) -> None:
        found = check([*self.history, *self.kept])
        if found and self.violation is None:
            self.violation = str(found[0])


@dataclass(frozen=True)
class Commit:
    """The state of the database after one commit: its row, and how many of the accepted writes it has."""

    row: Lease | None
    writes: int


class LeaseStore(FencedStore):
    """The store of the one lease.

    It keeps the state after every commit, so that a promotion can lose the last commits.
    """

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
        """Replace the server by a standby that lacks the last `lost` commits and has a new timeline.

        The lost commits may be older than the last promotion: then two standbys were promoted in turn, and neither had
        seen what the other one did.
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
        """End the lease although its holder did nothing wrong: an operator, or a jump of the clock, does that too."""
        row = self.row
        if row is not None and row.expires_at > self.shelf.now():
            self.shelf.rows[LEASE_NAME] = replace(row, expires_at=self.shelf.now())
            self._referee.taken_away(row.epoch)
            self.committed()
            self.shelf.notify("released", LEASE_NAME)


class JudgedLeases(MemoryLeases):
    """The lease verbs of the memory backend.

    They report grants, renewals, releases and refused acquires to the referee.
    """

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
