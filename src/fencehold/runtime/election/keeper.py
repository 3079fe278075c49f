"""Renews every lease that this process holds in one store, in batches, on the keeper's own thread and connection.

Each turn: wait until something is due, end the leases that lapsed, renew those that are due. User code that blocks its
event loop does not stop the renewals, until the loop has been blocked for longer than the stall limit.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from fencehold.model.election.leases import Ask, Busy, Lease, Refusal
from fencehold.model.election.settings import LeaderSettings
from fencehold.model.errors import FenceholdError, Uncertain
from fencehold.ports.clock import Clock
from fencehold.ports.facts import FactSink
from fencehold.ports.leases import Answer, LeasePort
from fencehold.runtime.core.loop_liveness import LoopLiveness
from fencehold.runtime.election.held_lease import DEADLINE_PASSED, LEFT_TO_LAPSE, LOST, RELEASED, RELEASING, HeldLease

BATCH_MAX = 1000
STORE_CLOSED = "store_closed"
OTHERS_WAIT = "it was not given back; others wait until it expires"
COALESCE = 0.25  # a lease due within this part of its interval is renewed together with one that is due now


class Keeper:
    """A lease that the store refuses to renew is lost at once.

    Without an answer the renewal is retried until the local deadline; with `drop_on_error` the lease is lost at once.
    """

    def __init__(self, port: LeasePort, clock: Clock, facts: FactSink) -> None:
        self._port = port
        self._clock = clock
        self._facts = facts
        self._held: dict[tuple[str, str, int], HeldLease] = {}
        self._wake = asyncio.Event()
        self._closed = False
        self._over = False
        self._background: set[asyncio.Future[bool]] = set()
        self._taking = 0
        self._unheard: dict[str, tuple[Ask, LeaderSettings]] = {}  # by nonce; no answer came
        self._all_taken = asyncio.Event()

    async def run(self) -> None:
        while not self._closed:
            await self._clock.wait(self._wake, self._next_s())
            self._wake.clear()
            self._end_lapsed()
            due = self._due()
            for start in range(0, len(due), BATCH_MAX):
                await self._renew(due[start : start + BATCH_MAX])

    async def take(
        self, ask: Ask, settings: LeaderSettings, liveness: LoopLiveness | None
    ) -> HeldLease | Refusal | Busy:
        """Acquire the lease; once it is granted, renew it. Raises Uncertain if no answer came."""
        sent_s = self._clock.now_s()
        self._taking += 1
        try:
            answer = await self._port.acquire(ask, settings.acquire_limit_s)
            self._unheard.pop(ask.nonce, None)
            if not isinstance(answer, Lease):
                return answer
            held = HeldLease(answer, settings, sent_s, self._clock, self._facts, liveness)
            held.renew_now = self._nudge(answer.name)
            if not held.is_valid or self._closed:
                reason = STORE_CLOSED if self._closed else "granted_too_late"
                held.end(reason, RELEASING if self._closed else LOST)
                await self.give_back(held, reason)
                return Refusal(reason, answer)
        except Uncertain:
            if self._closed:  # the caller can no longer give it back itself
                await self._give_back_unanswered(ask, settings)
            else:
                self._unheard[ask.nonce] = (ask, settings)
            raise
        finally:
            self._taking -= 1
            self._all_taken.set()
        self._held[answer.name, answer.holder_id, answer.epoch] = held
        self._wake.set()
        return held

    async def give_back(self, held: HeldLease, reason: str, release: bool = True) -> bool:
        """End the lease locally, then release it in the store, so that a successor need not wait.

        True if the store has confirmed the release. Without `release` the lease is left to lapse.
        """
        held.end(reason)
        self._forget(held)
        if not release or self._over:
            if held.is_given_up:
                held.fact(LEFT_TO_LAPSE, why=OTHERS_WAIT)
            return False
        try:
            answers = await self._port.release([held.key], held.settings.call_limit_s)
        except FenceholdError as error:
            self._log_not_released(held, reason=reason, sql_error=str(error))
            return False
        if isinstance(answers[0], Lease):
            if held.is_given_up:
                held.fact("leader_released", reason=held.ended_because)
            return True
        if held.is_given_up:
            self._log_not_released(held, reason="not ours any more")
        return False

    def _log_not_released(self, held: HeldLease, **fields: object) -> None:
        held.fact("leader_release_failed", **fields)
        if held.is_given_up:  # otherwise its loss is logged already
            held.fact(LOST, reason="release_not_confirmed")

    def start_giving_back(self, held: HeldLease, reason: str, release: bool = True) -> None:
        """`give_back` in the background: a slow release of one lease must not delay the renewal of others."""
        self._in_background(self.give_back(held, reason, release))

    def start_giving_back_unanswered(self, ask: Ask, settings: LeaderSettings) -> None:
        """In the background, give back the lease that an unanswered acquire may have been granted."""
        self._unheard.pop(ask.nonce, None)
        if not self._over:
            self._in_background(self._give_back_unanswered(ask, settings))

    async def _give_back_unanswered(self, ask: Ask, settings: LeaderSettings) -> bool:
        """Send the same acquire again: the store recognises its grant by the nonce and returns the epoch to release."""
        sent_s = self._clock.now_s()
        try:
            answer = await self._port.acquire(ask, settings.call_limit_s)
        except FenceholdError:
            return False  # the lease lapses by itself
        if not isinstance(answer, Lease):
            return False
        held = HeldLease(answer, settings, sent_s, self._clock, self._facts)
        held.end("unanswered", RELEASING)
        return await self.give_back(held, "unanswered")

    def _in_background(self, work: Coroutine[Any, Any, bool]) -> None:
        task = asyncio.ensure_future(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    def hint(self, name: str) -> None:
        """The store has sent a notification about this lease: renew it now, and read its row by that."""
        for held in self._held.values():
            if held.key.name == name:
                held.renew_at_s = self._clock.now_s()
                self._wake.set()

    def _nudge(self, name: str) -> Callable[[], bool]:
        """A function that calls `hint` from any thread; False on the keeper's own, which must not wait for itself."""
        loop, thread_id = asyncio.get_running_loop(), threading.get_ident()

        def nudge() -> bool:
            if threading.get_ident() == thread_id or loop.is_closed():
                return False
            loop.call_soon_threadsafe(self.hint, name)
            return True

        return nudge

    async def close(self) -> None:
        self._closed = True
        self._wake.set()
        for held in list(self._held.values()):
            held.end(STORE_CLOSED, RELEASING)
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
        self._over = True

    # --- one turn ---

    def _next_s(self) -> float | None:
        if not self._held:
            return None
        now_s = self._clock.now_s()
        return max(0.0, min(min(h.renew_at_s - now_s, h.remaining_s) for h in self._held.values()))

    def _end_lapsed(self) -> None:
        for held in [h for h in self._held.values() if not h.is_valid]:
            held.end(DEADLINE_PASSED)
            self._forget(held)

    def _due(self) -> list[HeldLease]:
        now_s = self._clock.now_s()
        ready = [h for h in self._held.values() if h.renew_at_s <= now_s]
        if not ready:
            return []
        soon = [h for h in self._held.values() if h.renew_at_s <= now_s + COALESCE * h.settings.renew_every_s]
        return [h for h in soon if self._is_attended(h)]

    def _is_attended(self, held: HeldLease) -> bool:
        """False once the holder's event loop has been blocked beyond the stall limit: the lease is left to expire."""
        if held.liveness is None:
            return True
        silent_s = held.liveness.silent_s()
        held.liveness.ask()
        if silent_s <= held.settings.stall_limit_s:
            held.stall_logged = False
            return True
        held.renew_at_s = self._clock.now_s() + held.retry_after_s()
        if not held.stall_logged:  # once: the keeper checks more and more often as the deadline comes closer
            held.stall_logged = True
            held.fact("leader_stalled", silent_s=round(silent_s, 3))
        return False

    async def _renew(self, batch: Sequence[HeldLease]) -> None:
        sent_s = self._clock.now_s()
        limit_s = min(h.settings.call_limit_s for h in batch)
        try:
            answers = await self._port.renew([h.key for h in batch], limit_s)
        except FenceholdError as error:
            for held in batch:
                self._unanswered(held, error)
            return
        late = [h for h, answer in zip(batch, answers, strict=True) if not self._answered(h, answer, sent_s)]
        for held in late:
            self.start_giving_back(held, "renewed_too_late")

    def _answered(self, held: HeldLease, answer: Answer, sent_s: float) -> bool:
        """Apply the store's answer. False if it renewed a lease that is over here: the row must then be given back."""
        if not isinstance(answer, Busy):
            held.row_locked.gone()
        match answer:
            case Lease():
                if held.extend(answer, sent_s):
                    held.fact("leader_renewed", **held.renew_failures.ended())
                    return True
                # A released lease is given back by the code that released it. If it was lost before its deadline, a
                # body may still be leaving: its row is left to lapse.
                return held.ended_because == RELEASED or held.until_deadline_s > 0
            case Refusal(reason=reason):
                held.end(reason)
                self._forget(held)
            case Busy():
                held.row_locked.found()
                held.renew_at_s = self._clock.now_s() + held.retry_after_s()
        return True

    def _unanswered(self, held: HeldLease, error: FenceholdError) -> None:
        held.renew_at_s = self._clock.now_s() + held.retry_after_s()
        held.fact("leader_renew_failed", sql_error=str(error), **held.renew_failures.failed())
        if held.settings.drop_on_error:
            held.end("renewal_failed")
            self._forget(held)

    def _forget(self, held: HeldLease) -> None:
        self._held.pop((held.key.name, held.key.holder_id, held.key.epoch), None)
