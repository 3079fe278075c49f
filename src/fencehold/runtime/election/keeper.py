"""Acquires, renews and gives back every leader's lease that this process holds in one store.

The keeper runs on a thread and a connection of its own: user code that blocks its event loop does not stop the
renewals, until that loop has been blocked for longer than the stall limit.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any, Protocol

from fencehold.model.election.rules import Ask, Busy, Lease, Refusal
from fencehold.model.election.settings import LeaderSettings
from fencehold.model.errors import FenceholdError, Uncertain
from fencehold.ports.clock import Clock
from fencehold.ports.fact_table import LeaseFacts
from fencehold.ports.facts import FactSink
from fencehold.ports.leases import Answer, LeasePort
from fencehold.runtime.core.keeper_thread import post_to
from fencehold.runtime.core.renewals import Kept, LoopLiveness, Renewals
from fencehold.runtime.core.repeated_failures import RenewFailures, RowLocked
from fencehold.runtime.core.trust import DEADLINE_PASSED, STORE_CLOSED

RELEASED = "released"
NOT_AWAITED = "fence_not_awaited"
IN_WORDS = {DEADLINE_PASSED: "its local deadline has passed"}
RETRY_S_MAX = 0.5  # after a failover the new primary is found within this


OTHERS_WAIT = "it was not given back; others wait until it expires"


class Bodies(Protocol):
    """The blocks of user code that run under a lease (`async with term:`), as the keeper sees them."""

    async def left(self, limit_s: float) -> bool:
        """Wait until the user's code inside every `async with term` has ended.

        Returns True when it has, False if some of it still runs after `limit_s`.
        """
        ...


class NoBodies:
    async def left(self, limit_s: float) -> bool:
        return True


class HeldLease(Kept):
    """A leader's lease that this process holds.

    When the lease ends, that is logged, and the listeners are called: the bodies that run under the lease, and the
    election.
    """

    def __init__(self, lease: Lease, settings: LeaderSettings, sent_s: float, clock: Clock, facts: FactSink) -> None:
        self.settings = settings
        super().__init__(clock, sent_s, lease.remaining_s - settings.margin_s)
        self.key = lease.key(settings.lease_s)
        self.lease = lease
        self.renew_at_s = sent_s + min(settings.renew_every_s, lease.remaining_s / 2)
        self.renew_failures = RenewFailures(settings.renew_every_s, clock)
        self.row_locked = RowLocked(clock)
        self._sink = facts
        self._is_distrusted = False
        self._confirmed = threading.Condition(self._lock)
        self._renewals = 0
        self.bodies: Bodies = NoBodies()
        #: Set by the keeper: makes it renew the lease now. False if the calling thread cannot wait for the answer.
        self.renew_now: Callable[[], bool] = lambda: False
        self._listeners: list[Callable[[], object]] = []

    @property
    def remaining_s(self) -> float:
        return 0.0 if self._is_distrusted else super().remaining_s

    def renewed(self, lease: Lease, sent_s: float) -> bool:
        """Record that the store has renewed the lease.

        Returns False, and changes nothing, if the lease is over in this process already.
        """
        if not self.extend(sent_s, lease.remaining_s - self.settings.margin_s):
            return False
        self.lease = lease
        self.renew_at_s = sent_s + self.settings.renew_every_s
        with self._lock:
            self._renewals += 1
            self._confirmed.notify_all()
        if lease.step_down_requested:
            self._notify_listeners()
        return True

    def confirmed(self, limit_s: float) -> bool | None:
        """Ask the store whether the lease is still ours, and block this thread until it answers.

        Returns True if the lease was renewed just now, False if it is over. Returns None if no answer came within the
        limit, or if this thread cannot wait for one.
        """
        with self._lock:
            before = self._renewals
        if self.is_valid and self.renew_now():
            with self._lock:
                self._confirmed.wait_for(lambda: bool(self.ended_because) or self._renewals > before, limit_s)
                if not self.ended_because and self._renewals > before:
                    return True
        return None if self.is_valid else False

    @property
    def why_over(self) -> str:
        return NOT_AWAITED if self._is_distrusted and not self.ended_because else super().why_over

    def distrust(self) -> None:
        """Make the lease invalid at once. The caller must arrange that `end` is called later.

        This takes no lock, because the garbage collector may call it while any lock is held.
        """
        self._is_distrusted = True

    def end(self, reason: str, given_up: bool = False) -> bool:
        """End the lease at once and for ever, and log that. Returns True for the first call; later calls do nothing."""
        if self._is_distrusted and not given_up:
            reason = NOT_AWAITED  # the caller may have taken it for a passed deadline
        if not super().end(reason, given_up):
            return False
        with self._lock:
            self._confirmed.notify_all()
        log_end = self.facts.leader_releasing if given_up else self.facts.leader_lost
        log_end(reason=reason, **self.renew_failures.ended())
        self._notify_listeners()
        return True

    @property
    def facts(self) -> LeaseFacts:
        """The facts that can be logged of this lease, with its fields as they are now."""
        key = self.key
        return LeaseFacts(self._sink, key.name, key.holder_id, key.epoch, self.lease.expires_at.isoformat())

    @property
    def step_down_requested(self) -> bool:
        return self.lease.step_down_requested

    def on_change(self, listener: Callable[[], object]) -> None:
        """Have `listener` called, on any thread, when the lease ends or a step-down is requested.

        It is called at once if either has happened already.
        """
        with self._lock:
            self._listeners.append(listener)
            happened = self.ended_because or self.step_down_requested
        if happened:
            listener()

    def _notify_listeners(self) -> None:
        for listener in list(self._listeners):
            listener()


class Keeper(Renewals[HeldLease]):
    """Acquires, renews and gives back the leaders' leases of one store, on the keeper's thread.

    A renewal without an answer is repeated until the local deadline. With `drop_on_error`, the lease is lost at the
    first renewal without an answer.
    """

    def __init__(self, port: LeasePort, clock: Clock, facts: FactSink) -> None:
        super().__init__({}, clock)
        self._port, self._facts = port, facts
        self._loop, self._thread_id = asyncio.get_running_loop(), threading.get_ident()
        self._is_closing = self._is_over = False
        self._background: set[asyncio.Future[bool]] = set()
        self._taking = 0
        self._unheard: dict[str, tuple[Ask, LeaderSettings]] = {}  # by nonce; no answer came
        self._all_taken = asyncio.Event()

    async def take(
        self, ask: Ask, settings: LeaderSettings, liveness: LoopLiveness | None
    ) -> HeldLease | Refusal | Busy:
        """Acquire the lease; if the store grants it, renew it from then on and return it as a HeldLease.

        Returns Refusal if another holds the lease or the grant came too late, Busy if another session has the row
        locked. Raises Uncertain if no answer came.
        """
        sent_s = self._clock.now_s()
        self._taking += 1
        try:
            answer = await self._port.acquire(ask, settings.acquire_limit_s)
            self._unheard.pop(ask.nonce, None)
            if not isinstance(answer, Lease):
                return answer
            held = HeldLease(answer, settings, sent_s, self._clock, self._facts)
            held.liveness, held.renew_now = liveness, partial(self._renew_soon, answer.name)
            if not held.is_valid or self._is_closing:
                reason = STORE_CLOSED if self._is_closing else "granted_too_late"
                held.end(reason, given_up=self._is_closing)
                await self.give_back(held, reason)
                return Refusal(reason, answer)
        except Uncertain:
            if self._is_closing:  # the caller can no longer give it back itself
                await self._give_back_unanswered(ask, settings)
            else:
                self._unheard[ask.nonce] = (ask, settings)
            raise
        finally:
            self._taking -= 1
            self._all_taken.set()
        self._kept[id(held)] = held
        self.nudge()
        return held

    async def give_back(self, held: HeldLease, reason: str, release: bool = True) -> bool:
        """End the lease locally, then release it in the store, so that a successor need not wait.

        Returns True if the store has confirmed the release. Without `release` the lease is left to lapse.
        """
        held.end(reason)
        self._forget(held)
        if not release or self._is_over:
            if held.is_given_up:
                held.facts.leader_left_to_lapse(why=OTHERS_WAIT)
            return False
        try:
            answers = await self._port.release([held.key], held.settings.call_limit_s)
        except FenceholdError as error:
            self._log_not_released(held, reason=reason, sql_error=str(error))
            return False
        if isinstance(answers[0], Lease):
            if held.is_given_up:
                held.facts.leader_released(reason=held.ended_because)
            return True
        if held.is_given_up:
            self._log_not_released(held, reason="not ours any more")
        return False

    def _log_not_released(self, held: HeldLease, reason: str, sql_error: str | None = None) -> None:
        held.facts.leader_release_failed(reason=reason, sql_error=sql_error)
        if held.is_given_up:  # otherwise its loss is logged already
            held.facts.leader_lost(reason="release_not_confirmed")

    def start_giving_back(self, held: HeldLease, reason: str, release: bool = True) -> None:
        """Call `give_back` in the background: a slow release of one lease must not delay the renewal of others."""
        self._in_background(self.give_back(held, reason, release))

    def start_giving_back_unanswered(self, ask: Ask, settings: LeaderSettings) -> None:
        """Start to give back, in the background, the lease that the store may have granted to an unanswered acquire."""
        self._unheard.pop(ask.nonce, None)
        if not self._is_over:
            self._in_background(self._give_back_unanswered(ask, settings))

    async def _give_back_unanswered(self, ask: Ask, settings: LeaderSettings) -> bool:
        """Send the unanswered acquire again, to learn which epoch the store granted, if any; release that epoch.

        The store recognises its earlier grant by the nonce in the request. Returns True if the store confirmed the
        release.
        """
        sent_s = self._clock.now_s()
        try:
            answer = await self._port.acquire(ask, settings.call_limit_s)
        except FenceholdError:
            return False  # the lease lapses by itself
        if not isinstance(answer, Lease):
            return False
        held = HeldLease(answer, settings, sent_s, self._clock, self._facts)
        held.end("unanswered", given_up=True)
        return await self.give_back(held, "unanswered")

    def _in_background(self, work: Coroutine[Any, Any, bool]) -> None:
        task = asyncio.ensure_future(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    def hint(self, name: str) -> None:
        """Renew this lease now, because the store has sent a notification about it: the renewal also reads its row."""
        for held in self._held():
            if held.key.name == name:
                held.renew_at_s = self._clock.now_s()
                self.nudge()

    def _renew_soon(self, name: str) -> bool:
        """Have `hint` called on the keeper's thread; callable on any thread.

        Returns True if it will be called. Returns False on the keeper's own thread, which must not wait for itself, and
        if its loop is closed.
        """
        return threading.get_ident() != self._thread_id and post_to(self._loop, self.hint, name)

    async def close(self) -> None:
        self._is_closing = True
        self.stop()
        for held in list(self._kept.values()):
            held.end(STORE_CLOSED, given_up=True)
            self.start_giving_back(held, STORE_CLOSED, release=held.settings.release_on_stop)
        while self._taking:  # leases that are being granted now are given back too
            self._all_taken.clear()
            await self._all_taken.wait()
        for ask, settings in list(self._unheard.values()):  # the caller may be too late to give it back
            if settings.release_on_stop:
                self.start_giving_back_unanswered(ask, settings)
        while self._background:  # a background task may have started another
            await asyncio.gather(*self._background)
            # From Python 3.12 on gather() does not wait where all are done: without a turn of the loop the callback
            # that takes them out of the set never runs, and this thread, on which all stores renew, would spin here.
            await asyncio.sleep(0)
        self._is_over = True

    # --- one turn ---

    def _every_s(self, kept: HeldLease) -> float:
        return kept.settings.renew_every_s

    def _stall_limit_s(self, kept: HeldLease) -> float:
        return kept.settings.stall_limit_s

    def _retry_after_s(self, kept: HeldLease) -> float:
        """Return the seconds until the next try: several tries fit before the deadline, but not too many."""
        return min(kept.settings.renew_every_s, RETRY_S_MAX, max(0.02, kept.remaining_s / 6))

    def _log_stalled(self, kept: HeldLease, silent_s: float) -> None:
        kept.facts.leader_stalled(silent_s=silent_s)

    def _held(self) -> list[HeldLease]:
        for held in [held for held in self._kept.values() if held.ended_because]:
            self._forget(held)
        return super()._held()

    async def _ask(self, due: Sequence[HeldLease]) -> Sequence[Answer]:
        limit_s = min(held.settings.call_limit_s for held in due)
        return await self._port.renew([held.key for held in due], limit_s)

    def _answered(self, due: Sequence[HeldLease], answers: Sequence[Answer], sent_s: float) -> None:
        for held, answer in zip(due, answers, strict=True):
            self._take_answer(held, answer, sent_s)

    def _take_answer(self, held: HeldLease, answer: Answer, sent_s: float) -> None:
        if not isinstance(answer, Busy):
            held.row_locked.gone()
        match answer:
            case Lease():
                if held.renewed(answer, sent_s):
                    held.facts.leader_renewed(**held.renew_failures.ended())
                # A released lease is given back by the code that released it. If it was lost before its deadline, a
                # body may still be leaving: its row is left to lapse.
                elif held.ended_because != RELEASED and held.until_deadline_s <= 0:
                    self.start_giving_back(held, "renewed_too_late")
            case Refusal(reason=reason):
                self._lose(held, reason)
            case Busy():
                held.row_locked.found(held.facts)
                self._put_off(held)

    def _unanswered(self, due: Sequence[HeldLease], error: FenceholdError) -> None:
        for held in due:
            self._put_off(held)
            held.facts.leader_renew_failed(sql_error=str(error), **held.renew_failures.failed())
            if held.settings.drop_on_error:
                self._lose(held, "renewal_failed")

    def _forget(self, held: HeldLease) -> None:
        self._kept.pop(id(held), None)
