"""Judges session locks, and the fencing epoch beside them, in a simulated run.

Safety, at every instant: a grant that is valid for its process belongs to the session that holds the lock at the
server, so that no two are valid at once; a process that is RECONNECTING does not lead. The epoch rises with every term;
a resumed term keeps its epoch, and nobody else led in between; the epochs of accepted writes never fall. Callbacks are
called for every term and its end. If the server took the lock away by itself (an operator, a restart), the process may
still trust its grant until it hears of that.

Liveness (the lock is acquired again in time) is judged by the schedule, once all faults have ended.
"""

from __future__ import annotations

from collections import deque
from typing import Any, Protocol

from fencehold.model.election.election import LockState
from fencehold.model.election.rules import Lease
from fencehold.runtime.lock.mechanism import Grant, Timing
from fencehold.runtime.lock.session_lock import SessionLock
from fencehold.testing.simulation.fences import FenceReferee
from fencehold.testing.simulation.loop import SimulationLoop
from fencehold.testing.simulation.network import STUTTER_S_MAX
from fencehold.testing.simulation.process import Process
from fencehold.testing.simulation.referee import SLACK_S, Trace

REMEMBERED = 6  # grants of each process
ACQUIRED, LOST, RELEASED, STOPPED = "acquired", "lost", "released", "stopped"
#: For each callback: which ones may be called next. A release that failed is reported by the error's callback only.
AFTER = {ACQUIRED: {LOST, RELEASED, STOPPED}, LOST: {ACQUIRED, STOPPED}, RELEASED: {ACQUIRED, STOPPED}}
AFTER[STOPPED] = {ACQUIRED, STOPPED}


class Contender(Process):
    """A simulated process that wants the lock: the attributes that the referee reads."""

    lock: SessionLock[Any]


class Server(Protocol):
    @property
    def holder(self) -> object | None: ...
    @property
    def row(self) -> Lease | None: ...


class LockReferee(FenceReferee):
    server: Server

    def __init__(self, loop: SimulationLoop, trace: Trace, timing: Timing) -> None:
        super().__init__(loop, trace)
        self.nodes: dict[str, Contender] = {}
        self.changes: set[str] = set()  # of states
        self.terms: dict[str, int] = {}  # begun, by process
        self.told: dict[str, list[str]] = {}  # callbacks that were called, by process
        self._step_back_s = 2 * (timing.probe_limit_s + STUTTER_S_MAX) + SLACK_S  # for probe and renewal of the epoch
        self._grants: dict[str, deque[Grant]] = {}
        self._led: tuple[str, int] = ("", 0)  # who began the last term, and its epoch
        self._own_epoch: dict[str, int | None] = {}  # of each process's last term
        self._seized = 0
        self._doubting: set[str] = set()  # processes in state LEADER whose `is_leader` was seen false since
        self._is_raised_again = False  # a session from which the lock had been taken has raised the epoch

    # --- what the server executed ---

    def seized(self, holder_id: str, epoch: int, by_holder: bool) -> None:
        self.trace.note("server", f"gives epoch {epoch} to {holder_id}")
        self.must(epoch > self._seized, f"{holder_id} was given epoch {epoch} after {self._seized}")
        self._seized = epoch
        self._is_raised_again = not by_holder

    # --- what a process did ---

    def leads(self, node: Contender, epoch: int | None, is_resumed: bool) -> None:
        """Judge that the state of this process becomes LEADER with this epoch (None: the lock has no epoch).

        `is_resumed`: it becomes so after a reconnect, perhaps with the term that it had before.
        """
        is_same = is_resumed and epoch == self._own_epoch.get(node.name)
        self._own_epoch[node.name] = epoch
        if not is_same:
            self.terms[node.name] = self.terms.get(node.name, 0) + 1
            self.counts["terms"] += 1
        self.counts["reconnects"] += is_resumed
        self._doubting.discard(node.name)
        mechanism = node.lock._mechanism
        session = mechanism._session if mechanism is not None else None
        knows = node.lock.is_leader and session is not None and not session.at_server.was_taken
        if epoch is not None and knows:  # else the process was halted since then, and leads no longer
            if epoch < self._led[1] or (epoch == self._led[1] and not is_same):
                self.fail(f"{node.name} leads with epoch {epoch} after {self._led[0]} led with {self._led[1]}")
            self._led = node.name, epoch

    def tell(self, node: Contender, what: str) -> None:
        told = self.told.setdefault(node.name, [STOPPED])
        self.must(what in AFTER[told[-1]], f"{node.name} was told {what} after {told[-1]}")
        told.append(what)

    # --- whenever something happened and all of it is done, before time moves on ---

    def judge(self, now_s: float) -> None:
        valid = 0
        for node in self.nodes.values():
            lock = node.lock
            if lock.state is not LockState.LEADER and (lock.is_leader or lock.term is not None):
                self.fail(f"{node.name} is {lock.state.value} and leads")
            if lock.state is LockState.LEADER and not lock.is_leader:
                self._doubting.add(node.name)
            elif lock.is_leader and node.name in self._doubting:
                self.fail(f"{node.name} did not lead any more, and leads again without having asked for it")
            for grant in self._grants_of(node):
                if grant.is_valid:
                    valid += self._judge_valid(node, grant)
        if valid > 1:
            self.fail("two grants are valid at once")

    def _grants_of(self, node: Contender) -> deque[Grant]:
        """Return the last grants with which this process has led.

        Old grants are in it: a user may still have an old term.
        """
        known = self._grants.setdefault(node.name, deque(maxlen=REMEMBERED))
        election = node.lock._election
        grant = election.grant if election is not None else None
        if grant is not None and grant not in known:
            known.append(grant)
        return known

    def _judge_valid(self, node: Contender, grant: Grant) -> bool:
        """Check this valid grant: its session must hold the lock at the server.

        Returns True if so. Returns False if the server took the lock away by itself: the grant may then overlap another
        one.
        """
        mechanism = node.lock._mechanism
        session = mechanism._session if mechanism is not None and mechanism._grant is grant else None
        if session is None:
            self.fail(f"{node.name} has a valid grant, and no session")
            return False
        if session.was_refused:
            self.fail(f"{node.name} was told that its session has no lock, and its grant is valid")
        if session.at_server.was_taken:
            heard_s = session.end_heard_s
            if heard_s is not None and node.user.running_s() - heard_s > self._step_back_s:
                self.fail(f"{node.name} has heard of the end of its session, and its grant is valid")
            return False
        if self.server.holder is not session.at_server:
            self.fail(f"{node.name} has a valid grant, and its session {session.at_server.number} has no lock")
        row = self.server.row
        if grant.epoch is not None and (row is None or row.epoch != grant.epoch) and not self._is_raised_again:
            self.fail(f"{node.name} has a valid grant of epoch {grant.epoch}, but the row is {row}")
        return True
