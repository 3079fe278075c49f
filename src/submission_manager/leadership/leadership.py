"""Leadership over many terms: in each term the schedule is rebuilt, kept fresh and executed, and then discarded.

Followers build no schedule. The end of a term, for whatever reason, ends all of its work at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any

from fencehold import ConfigurationError, FenceholdError, Leader, LeaseLost, Term
from submission_manager.context import ServiceContext
from submission_manager.executor.backlog import BacklogWatch
from submission_manager.executor.executor import Executor
from submission_manager.executor.running import Running
from submission_manager.executor.tenure import Dropped, Tenure
from submission_manager.executor.webhooks import WebhookDelivery
from submission_manager.leadership.reading import LeadershipSettings, ScheduleReader

# The pause after a term that an SQL error ended at once: otherwise instances would pass the lease around every second.
# Errors that no retry can fix, such as a missing table, get a longer pause than errors that may be over.
PAUSE_S, PAUSE_MAX_S, MISFIT_PAUSE_MAX_S = 1.0, 15.0, 60.0
MISFIT_KNOWN_S = 2 * MISFIT_PAUSE_MAX_S
AT_ONCE_S = 10.0
CUT, CUT_AT_ONCE = "they did not end within the drain timeout", "a second signal ended the process at once"
UNRECORDED = "the database did not record their outcome"
LEASE_LOST = "their lease was lost before their outcome was on record"
UNKNOWN = "; the next leader counts each as an attempt with an unknown outcome"
SETTLE_SHARE = 0.9  # of the rest of a lease that is given up: attempts under way may keep the lease for so long


class Leadership:
    """Seeks the lease, and leads in each term that it gets.

    It executes attempts only inside a valid term, and only after a full rebuild of the schedule within that term.
    """

    def __init__(
        self,
        leader: Leader,
        reader: ScheduleReader,
        executor: Executor,
        webhooks: WebhookDelivery,
        backlog: BacklogWatch,
        settings: LeadershipSettings,
        context: ServiceContext,
    ) -> None:
        self._leader, self.reader = leader, reader
        self._executor, self._webhooks, self._backlog = executor, webhooks, backlog
        self._settings = settings
        self._clock, self._metrics, self._facts = context.clock, context.metrics, context.facts
        self._stopping, self._drained = asyncio.Event(), asyncio.Event()
        self._pause_s = PAUSE_S
        self._misfit: FenceholdError | None = None  # the error that ended our newest term, unless a later term lasted
        self._misfit_s = 0.0
        self._leads_since_s: float | None = None

    @property
    def misfit(self) -> FenceholdError | None:
        """The error that keeps this instance from leading (such as a lost right), or that ended its term at once.

        None if there is no such error. The error is forgotten when this instance has led for a minute, or has not
        failed for two minutes: otherwise it would be reported for ever while another instance leads.
        """
        now_s, since_s = self._clock.now_s(), self._leads_since_s
        has_led = since_s is not None and now_s - since_s > MISFIT_PAUSE_MAX_S
        if has_led or now_s - self._misfit_s > MISFIT_KNOWN_S:
            self._misfit = None
        return self._misfit

    async def run(self) -> None:
        """Seek the lease and lead, again and again, until `stop()`."""
        self.reader.listen()
        try:
            async with self._leader:
                while not self._stopping.is_set() and not await self._terms():
                    await self._rest()
            if self._stopping.is_set():  # attempts have this time even if the last term has ended already
                await self._clock.wait(self._drained, self._settings.stop_limit_s)
        finally:
            await self._executor.close()
            await self._webhooks.close()

    async def _terms(self) -> bool:
        """Lead in one term after another. Returns True if the leader was stopped, False if this instance should pause.

        It should pause after an error that no retry can fix, or after an SQL error soon after a term's begin.
        """
        terms = self._leader.terms()
        try:
            async for term in terms:
                began_s = self._leads_since_s = self._clock.now_s()
                fault = await self._hold(term)
                self._leads_since_s = None
                lasted_s = self._clock.now_s() - began_s
                if fault is None or lasted_s > MISFIT_PAUSE_MAX_S:
                    self._pause_s = PAUSE_S
                if isinstance(fault, ConfigurationError) or (fault is not None and lasted_s < AT_ONCE_S):
                    self._unfit(fault)
                    return False
            return True
        finally:
            await terms.aclose()

    async def _rest(self) -> None:
        """Stop seeking the lease for a while, twice as long as the last time."""
        await self._leader.shutdown(self._settings.step_down_limit_s)
        while True:
            most_s = MISFIT_PAUSE_MAX_S if isinstance(self._misfit, ConfigurationError) else PAUSE_MAX_S
            pause_s = min(self._pause_s, most_s)
            self._facts.fact("leadership_paused", holder_id=self._leader.holder_id, seconds=pause_s)
            is_stopping = await self._clock.wait(self._stopping, pause_s)
            self._pause_s = 2 * pause_s
            if is_stopping:
                return
            try:
                await self._leader.start()
                return
            except ConfigurationError as error:  # the lease table is missing too
                self._unfit(error)
                self._facts.fact("leader_acquire_failed", lease_name=self._leader.name, sql_error=str(error))

    def _unfit(self, fault: FenceholdError) -> None:
        self._misfit, self._misfit_s = fault, self._clock.now_s()

    async def stop(self, lost_since_s: float | None = None) -> int:
        """Begin nothing new, let running attempts end within the limit, then release the lease.

        Returns how many attempts were cut off by the limit, or were made but not recorded since `lost_since_s`: nobody
        knows whether the provider accepted those attempts.
        """
        self._stopping.set()
        lost_since_s = self._clock.now_s() if lost_since_s is None else lost_since_s
        self._executor.rest()
        limit_s = self._settings.stop_limit_s
        began_s = self._clock.now_s()
        await self._executor.drained(limit_s)
        in_hand, lost = self._executor.in_hand.all(), self._executor.in_hand.lost_since(lost_since_s)
        cut = in_hand + lost
        if cut:
            waited_s = round(self._clock.now_s() - began_s, 1)
            self._facts.fact("attempts_cut", **_which(cut), after_s=waited_s, why=_why(in_hand, lost))
        await self._webhooks.drained(max(0.0, began_s + limit_s - self._clock.now_s()))
        if self._webhooks.in_hand:
            self._facts.fact("webhooks_cut", webhooks=len(self._webhooks.in_hand), why="the next leader sends them")
        self._drained.set()
        await self._leader.shutdown(self._settings.step_down_limit_s)
        return len(cut)

    def log_cut(self) -> None:
        """Log the attempts that are cut because the process ends now, if any. Safe to call from any thread."""
        cut = self._executor.in_hand.all()
        if cut:
            self._facts.fact("attempts_cut", **_which(cut), why=CUT_AT_ONCE + UNKNOWN)

    # --- one term ---

    async def _hold(self, term: Term) -> FenceholdError | None:
        """Lead for one term. Returns the database error that ended it, or None."""
        tenure: Tenure | None = None
        try:
            async with term:  # if it is over already, waits for the next term, which `term` then is
                tenure = Tenure(
                    term, self._clock, self._facts, drops_on_error=self._settings.drops_on_error,
                    virtual_us=int(self._settings.virtual_deadline_s * 1_000_000),
                )  # fmt: skip
                await self._lead_as(tenure, term.epoch)
        except Exception as error:  # noqa: BLE001 - a bug of ours ends this term, not the service
            if tenure is None and isinstance(error, LeaseLost):
                return None  # the leader was stopped before the term began
            self._facts.fact("internal_error", error=f"{type(error).__name__}: {error}")
        fault = tenure.fault.result() if tenure is not None and tenure.fault.done() else None
        if tenure is not None:
            await self._give_up(tenure, fault)
        if term.is_valid:  # so that others need not wait until it expires
            await self._leader.step_down(self._settings.step_down_limit_s)
        if tenure is not None:
            tenure.end()
        return fault

    async def _give_up(self, tenure: Tenure, fault: FenceholdError | None) -> None:
        """Begin nothing new, and keep the lease while calls are under way, but not until it expires.

        So the outcomes of these calls are recorded, if the database answers, and the next leader does not repeat them
        at once.
        """
        limit_s = SETTLE_SHARE * tenure.term.remaining_s
        if isinstance(fault, ConfigurationError):
            self._unfit(fault)
        if fault is not None:
            term, under_way = tenure.term, len(self._executor.in_hand.of(tenure))
            self._facts.fact(
                "leader_lost", lease_name=term.name, holder_id=term.holder_id, lease_epoch=term.epoch,
                expires_at=term.expires_at.isoformat(), reason="sql_error", attempts_under_way=under_way,
                sql_error=str(fault),
            )  # fmt: skip
        await self._executor.settled(tenure, limit_s)

    async def _lead_as(self, tenure: Tenure, epoch: int) -> None:
        self._metrics.role(True, epoch)
        try:
            await self._lead(tenure)
        finally:
            self._executor.abandon(tenure)
            self._webhooks.abandon(tenure)
            self._metrics.role(False, epoch)

    async def _lead(self, tenure: Tenure) -> None:
        """Do all work of a term. Returns when leadership must be given up; is cancelled when the lease is lost."""
        try:
            cursor = await self.reader.rebuild(tenure)
            tenure.check()  # the lease may be lost meanwhile; then this schedule is never used
        except Dropped:
            return
        async with asyncio.TaskGroup() as group:
            loops = [
                group.create_task(_until_dropped(loop))
                for loop in (
                    self.reader.refresh(tenure, cursor),
                    self._executor.run(tenure),
                    self._executor.expiry.run(tenure),
                    self._webhooks.sweep(tenure),
                    self._backlog.run(tenure),
                    self.reader.stay_fit(tenure),
                )
            ]
            await asyncio.shield(tenure.fault)
            for one in loops:
                one.cancel()


def _which(cut: Sequence[Running]) -> dict[str, Any]:
    """Return the log fields of attempts that were cut off: their count, intents, keys, and their gateways' answers."""
    received = [f"{one.key}: {one.received()}" for one in cut if one.outcome is not None]
    ids, keys = [one.job.intent_id for one in cut], [one.key for one in cut if one.key]
    return {"attempts": len(cut), "intents": ids, "keys": keys, "received": received}


def _why(in_hand: Sequence[Running], lost: Sequence[Running]) -> str:
    whys = [CUT] * bool(in_hand) + [LEASE_LOST if one.is_fenced_out else UNRECORDED for one in lost]
    return " or ".join(dict.fromkeys(whys)) + UNKNOWN


async def _until_dropped(loop: Coroutine[Any, Any, None]) -> None:
    try:
        await loop
    except Dropped:
        return
