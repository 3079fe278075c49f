"""Leadership by a lease row: the keeper acquires and renews on its thread; the election runs on the caller's loop."""

from __future__ import annotations

import asyncio
import secrets
from typing import Any

from fencehold.model.election.retry import DecorrelatedJitter, RetryContext
from fencehold.model.election.rules import Ask, Busy, Lease, Refusal
from fencehold.model.election.settings import LeaderSettings
from fencehold.model.errors import ConfigurationError, FenceholdError, Unavailable, Uncertain
from fencehold.ports.fact_table import LeaseFacts, OutageFacts
from fencehold.ports.mechanism import Unanswered
from fencehold.runtime.context import StoreContext
from fencehold.runtime.core.keeper_thread import post_to
from fencehold.runtime.core.renewals import LoopLiveness
from fencehold.runtime.core.repeated_failures import Outage, RowLocked
from fencehold.runtime.core.trust import DEADLINE_PASSED
from fencehold.runtime.election.election import STEP_DOWN_REQUESTED
from fencehold.runtime.election.keeper import RELEASED, HeldLease
from fencehold.runtime.election.watch import Follow, News

ERROR_PAUSE_S_MAX = 0.5  # so that a lease is taken within a second of a failover's end
FIRST_WORD_S = 4.0
NO_ANSWER_YET = f"The store has not answered an acquire for {FIRST_WORD_S:.0f} s; it is waited for."
NOT_CONFIRMED = "The store did not confirm the release of the lease."


class LeaseRetry:
    """Decides when to try again: after a refusal in the acquire interval, after an error in at most half a second.

    The pause after an error grows with each error and is random in part, so that candidates do not try all at once.
    """

    def __init__(self, settings: LeaderSettings) -> None:
        self._interval_s = settings.acquire_every_s
        self._backoff = DecorrelatedJitter(min(0.1, self._interval_s), min(ERROR_PAUSE_S_MAX, self._interval_s))

    def next_delay_s(self, ctx: RetryContext) -> float | None:
        return self._interval_s if ctx.last_error is None else self._backoff.next_delay_s(ctx)


class LeaseMechanism:
    def __init__(
        self,
        name: str,
        holder_id: str,
        settings: LeaderSettings,
        context: StoreContext,
        *,
        patient: bool,
    ) -> None:
        """Prepare a candidate's attempts to acquire the lease.

        `patient`: True: wait for the watch to see that the lease is free; False: try at every interval.
        """
        self._name, self._holder_id, self._settings = name, holder_id, settings
        self._keeper, self._keeper_loop = context.keeper, context.keeper_loop
        self._clock, sink = context.clock, context.facts.sink
        self._facts = LeaseFacts(sink, name, holder_id)
        self._patient = patient
        self._loop = asyncio.get_running_loop()
        self._liveness = LoopLiveness(self._loop, self._clock)
        self._nonce = secrets.token_hex(16)
        self._worth_a_try = asyncio.Event()
        self._answer: Refusal | Busy | None = None
        self._held: HeldLease | None = None
        self._is_unanswered = False  # the last attempt got no answer: the store may have granted it
        self._outage = Outage(OutageFacts(sink, lease_name=name, holder_id=holder_id), self._clock)
        self._row_locked = RowLocked(self._clock)
        self._has_worked = False  # the store has answered an attempt: after that every error is retried
        self.mistake: ConfigurationError | None = None  # raised by an attempt before the store had ever answered
        self.first_tried = asyncio.Event()
        self._follow = Follow(name, settings.acquire_every_s, self._hear)
        self._follow_lease()

    async def attempt(self) -> HeldLease | None:
        self._worth_a_try.clear()
        future = self._keeper_loop.begin(self._keeper.keeper.take(self._ask(), self._settings, self._liveness))
        try:
            await asyncio.wait([future], timeout=FIRST_WORD_S)
            if not future.done():
                self._outage.failed(Unavailable(NO_ANSWER_YET, code="no_answer_yet"))
            answer = await asyncio.shield(future)
        except asyncio.CancelledError:
            future.add_done_callback(self._unwanted)
            raise
        except FenceholdError as error:
            # The nonce stays: if the store did grant it, the next attempt recognises its own grant.
            self._answer = None
            self._is_unanswered = isinstance(error, Uncertain)
            self._log_refused(None, sql_error=str(error))
            if isinstance(error, ConfigurationError) and not self._has_worked:
                self.mistake = error
            else:
                self._outage.failed(error)
            raise
        finally:
            self.first_tried.set()
        self._has_worked, self._is_unanswered = True, False
        self._outage.answered()
        self._nonce = secrets.token_hex(16)
        if isinstance(answer, Busy):
            self._row_locked.found(self._facts)
        else:
            self._row_locked.gone()
        if isinstance(answer, HeldLease):
            self._held = answer
            self._follow_no_more()
            return answer
        self._answer = answer
        # A row that stays locked is logged as `lease_row_locked`, not at every try.
        self._log_refused(answer.current, is_repeat=self._row_locked.tries > 1 or None)
        self._keeper_loop.post(self._keeper.watch.saw, self._name, answer.current)
        return None

    async def hold(self, grant: HeldLease) -> str:
        changed = asyncio.Event()
        grant.on_change(lambda: post_to(self._loop, changed.set))
        while grant.is_valid:
            if grant.step_down_requested:
                return STEP_DOWN_REQUESTED
            await self._clock.wait(changed, grant.remaining_s)
        grant.end(DEADLINE_PASSED)
        self._follow_lease()
        return grant.ended_because

    async def release(self, grant: HeldLease, stop: asyncio.Event) -> bool:
        """End the lease locally, wait for the bodies under it to leave, then release its row or leave it to lapse.

        Returns True. Raises Unanswered if the store did not confirm the release.
        """
        # Not remaining_s: the lease may have ended already, while bodies are still running.
        left_s = grant.until_deadline_s
        grant.end(RELEASED, given_up=True)
        while not await grant.bodies.left(left_s) and (left_s := grant.until_deadline_s) > 0:
            continue  # the event loop's clock is a little ahead of the clock of the deadline
        release = self._settings.release_on_stop or grant.step_down_requested or not stop.is_set()
        given_back = await asyncio.shield(
            self._keeper_loop.begin(self._keeper.keeper.give_back(grant, RELEASED, release))
        )
        self._held = None
        self._follow_lease()
        if release and not given_back:
            raise Unanswered(
                Uncertain(NOT_CONFIRMED, hint=f"Others wait until it expires at {grant.lease.expires_at}.")
            )
        return True

    async def pause(self, delay_s: float, stop: asyncio.Event) -> None:
        timeout_s: float | None = delay_s
        if isinstance(self._answer, Busy):
            timeout_s = min(delay_s, self._row_locked.pause_s())
        elif self._patient and isinstance(self._answer, Refusal) and self._answer.current is not None:
            timeout_s = None  # the watch polls for all followers and wakes this one when a try is useful
        stopped = asyncio.ensure_future(stop.wait())
        stopped.add_done_callback(self._stopped)
        try:
            await self._clock.wait(self._worth_a_try, timeout_s)
        finally:
            # Remove the callback first: the cancel would call it, which sets the event as a hint does and ends the
            # next pause.
            stopped.remove_done_callback(self._stopped)
            stopped.cancel()

    def is_hopeless(self, error: Exception | None) -> bool:
        """Return whether no further attempt can help: ConfigurationError came before any attempt was answered.

        Once the store has answered an attempt, every error is retried.
        """
        return self.mistake is not None

    def is_new_term(self, grant: HeldLease) -> bool:
        return True  # never called: a lease has no grace period; its term continues until its deadline

    async def close(self) -> None:
        self._follow_no_more()
        held, self._held = self._held, None
        if held is not None and held.end("cancelled") and await held.bodies.left(0.0):
            self._start_giving_back(held)  # while a body still runs, the lease is left to lapse
        if self._is_unanswered:
            self._start_giving_back_unanswered()

    # --- parts ---

    def _ask(self) -> Ask:
        return Ask(self._name, self._holder_id, self._settings.lease_s, self._nonce)

    def _stopped(self, _: asyncio.Future[Any]) -> None:
        self._worth_a_try.set()

    def _hear(self, news: News, lease: Lease | None) -> None:
        """End the pause before the next attempt if this news means that the lease may be free.

        Runs on the keeper's loop.
        """
        if news is News.FREED or (news is News.SEEN and (lease is None or not lease.is_live)):
            post_to(self._loop, self._worth_a_try.set)

    def _unwanted(self, future: asyncio.Future[HeldLease | Refusal | Busy]) -> None:
        """Give back the lease that the store has granted, or may have granted, to an attempt that was cancelled."""
        if not future.cancelled() and future.exception() is None and isinstance(held := future.result(), HeldLease):
            held.end("cancelled", given_up=True)
            self._start_giving_back(held)
        elif not future.cancelled() and isinstance(future.exception(), Uncertain):
            self._start_giving_back_unanswered()

    def _start_giving_back(self, held: HeldLease) -> None:
        self._keeper_loop.post(self._keeper.keeper.start_giving_back, held, "cancelled", self._settings.release_on_stop)

    def _start_giving_back_unanswered(self) -> None:
        if self._settings.release_on_stop:
            self._keeper_loop.post(self._keeper.keeper.start_giving_back_unanswered, self._ask(), self._settings)

    def _follow_lease(self) -> None:
        self._keeper_loop.post(self._keeper.watch.follow, self._follow)

    def _follow_no_more(self) -> None:
        self._keeper_loop.post(self._keeper.watch.unfollow, self._follow)

    def _log_refused(self, current: Lease | None, sql_error: str | None = None, is_repeat: bool | None = None) -> None:
        self._facts.leader_acquire_failed(
            lease_epoch=current.epoch if current else None, held_by=current.holder_id if current else None,
            expires_at=current.expires_at.isoformat() if current else None, sql_error=sql_error, is_repeat=is_repeat,
        )  # fmt: skip
