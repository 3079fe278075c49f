"""Renews leases in batches: one loop for leaders, events and items, on the keeper's thread.

Each turn waits until a renewal is due, ends the leases whose time is over, and renews those that are due. A user's code
that blocks its own event loop does not stop the renewals.
"""

from __future__ import annotations

import asyncio
import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Generic, TypeVar

from fencehold.model.errors import FenceholdError
from fencehold.ports.clock import Clock
from fencehold.runtime.core.keeper_thread import post_to
from fencehold.runtime.core.trust import DEADLINE_PASSED, REFUSED, Trust

TOO_LONG = "max_processing"
BATCH_MAX = 1000


class LoopLiveness:
    """Detects, from another thread, whether an event loop still runs its callbacks.

    The keeper must not renew the leases of a process whose own event loop is blocked or closed. `ask` posts a callback
    to the loop; `silent_s` is how long the oldest posted callback has waited to be called. A closed loop never calls
    it.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Clock) -> None:
        self._loop = loop
        self._clock = clock
        self._asked_s: float | None = None

    def ask(self) -> None:
        if self._asked_s is None:
            self._asked_s = self._clock.now_s()
            post_to(self._loop, self._answer)

    def silent_s(self) -> float:
        asked_s = self._asked_s
        return 0.0 if asked_s is None else self._clock.now_s() - asked_s

    def _answer(self) -> None:
        self._asked_s = None


class Kept(Trust):
    """A lease that is to be renewed.

    `liveness` watches the event loop that works under the lease; None if that loop does not decide about renewals.
    """

    __slots__ = ("liveness", "renew_at_s", "stall_logged")

    def __init__(self, clock: Clock, sent_s: float, trusted_s: float) -> None:
        super().__init__(clock, sent_s, trusted_s)
        self.renew_at_s = sent_s
        self.liveness: LoopLiveness | None = None
        self.stall_logged = False


K = TypeVar("K", bound=Kept)


class Renewals(ABC, Generic[K]):
    """Renews the leases in `kept`, on the keeper's loop. A subclass says how one kind of lease is renewed.

    A lease whose local deadline passes, or that the store refuses to renew, is over at once. `kept` maps the id() of
    each lease to the lease; other code adds and removes leases, on any thread. Whoever adds a lease that may be due
    sooner than `_look_every_s` calls `nudge`.
    """

    #: A lease that is due within this part of its interval is renewed together with one that is due now.
    soon_part = 0.25
    #: How often a renewal without an answer is sent at once.
    tries = 1

    def __init__(self, kept: dict[int, K], clock: Clock) -> None:
        self._kept = kept
        self._clock = clock
        self._wake = asyncio.Event()
        self._stopped = False

    async def run(self) -> None:
        """Renew until `stop` is called."""
        while not self._stopped:
            await self._clock.wait(self._wake, self._next_s())
            self._wake.clear()
            self._end_overdue()
            due = self._due()
            for start in range(0, len(due), BATCH_MAX):
                await self._renew(due[start : start + BATCH_MAX])

    def nudge(self) -> None:
        """Start the next turn now, because a lease may be due sooner than was known."""
        self._wake.set()

    def stop(self) -> None:
        self._stopped = True
        self._wake.set()

    # --- what differs by kind ---

    @abstractmethod
    async def _ask(self, due: Sequence[K]) -> Sequence[Any]:
        """Ask the store to renew these leases. Return one answer for each."""

    @abstractmethod
    def _answered(self, due: Sequence[K], answers: Sequence[Any], sent_s: float) -> None: ...

    @abstractmethod
    def _unanswered(self, due: Sequence[K], error: FenceholdError) -> None:
        """Handle a renewal for which no try got an answer: try these leases again later, or end them."""

    @abstractmethod
    def _every_s(self, kept: K) -> float:
        """Return the seconds between two renewals of this lease."""

    def _look_every_s(self) -> float:
        """Return the longest time between two turns, in seconds; infinity if `nudge` is called for every new lease."""
        return math.inf

    def _due_s(self, kept: K) -> float:
        return kept.renew_at_s

    def _max_s(self, kept: K) -> float:
        """Return how many seconds the work under this lease may take."""
        return math.inf

    def _stall_limit_s(self, kept: K) -> float:
        """Return for how many seconds the event loop that works under this lease may be blocked."""
        return math.inf

    def _retry_after_s(self, kept: K) -> float:
        """Return the seconds until a lease that could not be renewed is due again."""
        return self._every_s(kept) / 2

    def _log_stalled(self, kept: K, silent_s: float) -> None:
        """Log that the lease is not renewed any more, because its event loop has been blocked for too long."""

    def _lost(self, kept: K) -> None:
        """React to the loss of this lease, after `_lose` has ended it; does nothing here."""

    # --- one turn ---

    def _held(self) -> list[K]:
        return [kept for kept in list(self._kept.values()) if not kept.ended_because]

    def _next_s(self) -> float | None:
        """Return the seconds until some lease is due or over; None if no lease will be."""
        now_s = self._clock.now_s()
        moments_s = (
            min(self._due_s(k) - now_s, k.remaining_s, k.started_s + self._max_s(k) - now_s) for k in self._held()
        )
        next_s = min(min(moments_s, default=math.inf), self._look_every_s())
        return None if next_s == math.inf else max(0.0, next_s)

    def _end_overdue(self) -> None:
        now_s = self._clock.now_s()
        for kept in self._held():
            if now_s - kept.started_s >= self._max_s(kept):
                self._lose(kept, TOO_LONG)
            elif not kept.is_valid:
                self._lose(kept, DEADLINE_PASSED)

    def _due(self) -> list[K]:
        """Return the leases to renew now: none if none is due; otherwise also those that will be due soon."""
        now_s, held = self._clock.now_s(), self._held()
        if all(self._due_s(kept) > now_s for kept in held):
            return []
        soon = [kept for kept in held if self._due_s(kept) <= now_s + self.soon_part * self._every_s(kept)]
        return [kept for kept in soon if self._is_attended(kept)]

    def _is_attended(self, kept: K) -> bool:
        """Return whether the event loop that works under the lease runs, so that the lease may be renewed.

        Returns False if the loop has been blocked for longer than the limit: the lease is then left to lapse.
        """
        if kept.liveness is None:
            return True
        silent_s = kept.liveness.silent_s()
        kept.liveness.ask()
        if silent_s <= self._stall_limit_s(kept):
            kept.stall_logged = False
            return True
        self._put_off(kept)
        if not kept.stall_logged:  # once: the keeper may look more and more often as the deadline comes closer
            kept.stall_logged = True
            self._log_stalled(kept, round(silent_s, 3))
        return False

    async def _renew(self, due: Sequence[K]) -> None:
        for tries_left in reversed(range(self.tries)):
            sent_s = self._clock.now_s()
            try:
                answers = await self._ask(due)
            except FenceholdError as error:
                if not tries_left:
                    self._unanswered(due, error)
            else:
                self._answered(due, answers, sent_s)
                return

    def _put_off(self, kept: K) -> None:
        kept.renew_at_s = self._clock.now_s() + self._retry_after_s(kept)

    def _lose(self, kept: K, reason: str) -> None:
        kept.end(reason)
        self._lost(kept)


class Heartbeats(Renewals[K]):
    """Renews leases for which the store returns one answer each: the renewal, or None, which means that it was refused.

    Leases may be added to `kept` without a `nudge`: this class looks at `kept` twice per interval.
    """

    soon_part = 0.5
    tries = 2

    @abstractmethod
    def _record(self, kept: K, answer: Any, sent_s: float) -> bool:
        """Record that the store has renewed the lease. Returns False if the lease is over in this process already."""

    @abstractmethod
    def _log_heartbeat(self, sent: int, refused: int) -> None: ...

    def _answered(self, due: Sequence[K], answers: Sequence[Any], sent_s: float) -> None:
        refused: list[K] = []
        for kept, answer in zip(due, answers, strict=True):
            if answer is None:
                if id(kept) in self._kept:  # else its work ended meanwhile: a refusal is right then, and no loss
                    refused.append(kept)
            elif not self._record(kept, answer, sent_s):
                self._lose(kept, DEADLINE_PASSED)
        self._log_heartbeat(len(due), len(refused))
        for kept in refused:
            self._lose(kept, REFUSED)
