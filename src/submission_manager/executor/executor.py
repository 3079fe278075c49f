"""The leader's attempts: record the start, call the gateway once, record the outcome; the term fences each write.

Not promised: that calls in flight never overlap. A call under way when the lease is lost runs to its end, so that the
provider is not cut off, but its outcome is not written; the next leader finds its recorded start.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from fencehold import FenceholdError, LeaseLost, Uncertain
from submission_manager.context import ServiceContext
from submission_manager.executor.ends import Ends
from submission_manager.executor.expiry import Expiry
from submission_manager.executor.gateways import GatewayWatch
from submission_manager.executor.parking import Parking, is_locked, unanswered
from submission_manager.executor.running import InHand, Phase, Running
from submission_manager.executor.tenure import SQL_ERRORS, Dropped, Tenure
from submission_manager.executor.webhooks import WebhookDelivery
from submission_manager.model.call_times import CallTimes
from submission_manager.model.intents import ERROR_CHARS_MAX, Status
from submission_manager.model.outcomes import Answer, Outcome, no_answer
from submission_manager.ports import AttemptPort, GatewayPort, NotNow, Recorded, Started
from submission_manager.schedule.schedule import micros

GATEWAY_SLACK_S = 1.0  # the extra time a gateway client gets after its own limit before it is cancelled
NOT_NOW_PAUSE_US = 50_000  # our estimate of the database's clock was early: try again, but not too often
TROUBLE_PAUSE_S = 1.0


@dataclass(frozen=True)
class ExecutorSettings:
    """The limits of the executor.

    At most `concurrency` attempts run at one gateway at once, so that a gateway that hangs blocks only its own
    attempts.
    """

    concurrency: int = 16
    concurrency_total: int = 128
    retry_delay_s: float = 5.0
    gateway_limit_s: float = 10.0
    write_limit_s: float = 10.0

    def __post_init__(self) -> None:
        if not 0 < self.concurrency <= self.concurrency_total:
            raise ValueError("0 < concurrency <= concurrency_total")
        if not (self.retry_delay_s > 0 and self.gateway_limit_s > 0 and self.write_limit_s > 0):
            raise ValueError("retry_delay_s, gateway_limit_s and write_limit_s must be above 0")


class Executor:
    """Makes the attempts of the intents in the leader's schedule.

    It begins attempts only while its term is valid, and at most one per intent and term at the same time.
    """

    def __init__(
        self,
        attempts: AttemptPort,
        gateway: GatewayPort,
        webhooks: WebhookDelivery,
        settings: ExecutorSettings,
        context: ServiceContext,
    ) -> None:
        self._attempts, self._gateway, self._settings = attempts, gateway, settings
        self._clock, self._metrics, self._facts = context.clock, context.metrics, context.facts
        self._writes = context.writes
        self._ends = Ends(webhooks, context)
        self._parking = Parking(context.facts)
        self.expiry = Expiry(attempts, self._ends, self._parking, settings.write_limit_s, context)
        self._gateways = GatewayWatch(context.metrics, context.facts)
        self.in_hand = InHand(settings.concurrency, settings.concurrency_total, context.clock)
        self._times = CallTimes()  # kept across terms
        self._tenure: Tenure | None = None
        self._resting = False

    # --- called by leadership ---

    async def run(self, tenure: Tenure) -> None:
        """Begin attempts that are due, until the term ends."""
        self._tenure = tenure
        while True:
            tenure.check()
            tenure.work.clear()
            now_us = tenure.store_clock.now_us()
            job = None if self._resting else tenure.schedule.take(now_us, self.in_hand.load, self._times.expected_us)
            self._metrics.queue_depth.set(len(tenure.schedule))
            if job is not None:
                self._begin(Running(job, tenure))
            else:
                await self._clock.wait(tenure.work, self._rest_s(tenure, now_us))

    def abandon(self, tenure: Tenure) -> None:
        """Cancel the attempts of this term that are not yet at the gateway; calls already made go on to their end.

        The outcomes of these calls are recorded while the lease is still ours; after its loss nothing is written.
        """
        for running in self.in_hand.of(tenure):
            is_over = not tenure.term.is_valid
            if running.task is not None and (
                running.phase is Phase.START or (is_over and running.phase is Phase.RECORD)
            ):
                running.is_abandoned = True
                running.task.cancel()

    async def settled(self, tenure: Tenure, limit_s: float) -> bool:
        """Wait until every attempt made in this term is recorded. Returns True once that is so.

        Returns False when the limit is over or the term is no longer valid.
        """
        ends_s = self._clock.now_s() + limit_s
        over = asyncio.ensure_future(tenure.term.ended())
        try:
            while tenure.term.is_valid and (tasks := self._made(tenure)):
                left_s = ends_s - self._clock.now_s()
                if left_s <= 0:
                    return False
                await asyncio.wait([*tasks, over], timeout=left_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            over.cancel()
        return not self._made(tenure)

    def _made(self, tenure: Tenure) -> list[asyncio.Task[None]]:
        return [one.task for one in self.in_hand.of(tenure) if one.is_made and one.task is not None]

    def rest(self) -> None:
        """Begin no more attempts, in this term or another."""
        self._resting = True

    async def drained(self, limit_s: float) -> bool:
        """Wait until no attempt is under way. Returns True then, False if the limit is over first."""
        return await self._clock.wait(self.in_hand.idle, limit_s)

    async def close(self) -> None:
        """Cancel every attempt still under way, and write the last log lines."""
        tasks = [one.task for one in self.in_hand.all() if one.task is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        self._gateways.close()
        self._ends.close()
        self._parking.close()

    # --- one attempt ---

    def _begin(self, running: Running) -> None:
        self.in_hand.begin(running)
        self._metrics.inflight.set(len(self.in_hand))
        running.task = asyncio.create_task(self._attempt(running), name=f"attempt-{running.job.intent_id}")
        running.task.add_done_callback(lambda _: self._ended(running))

    def _ended(self, running: Running) -> None:
        self.in_hand.end(running)
        self._metrics.inflight.set(len(self.in_hand))
        if self._tenure is not None:  # the newest term, not the attempt's own: an older term's attempt makes room too
            self._tenure.wake()

    async def _attempt(self, running: Running) -> None:
        taken_s = self._clock.now_s()
        try:
            running.started = started = await self._start(running)
            if started is None:
                return
            running.tenure.check()
            running.phase = Phase.CALL
            began_s = self._clock.now_s()
            running.outcome = await self._call(started)
            running.phase = Phase.RECORD
            await self._record(running, started, self._clock.now_s() - began_s)
            if running.outcome.answer is not Answer.ERROR:  # a timeout does not show how long an answer takes
                self._times.took(running.job.lane, int((self._clock.now_s() - taken_s) * 1_000_000))
        except Dropped:
            return
        except LeaseLost:
            self._fenced_out(running)
        except asyncio.CancelledError:
            if running.is_made and running.is_abandoned:
                self._fenced_out(running)
            elif running.is_made:
                self.in_hand.lost(running)
            raise
        except Exception as error:  # noqa: BLE001 - one bad intent must not end the term
            self._poisoned(running, error)

    async def _start(self, running: Running) -> Started | None:
        tenure, job = running.tenure, running.job
        try:
            async with self._writes:
                tenure.check()
                # Time out before the transaction's own limit, the end of the lease: that would look like a failed
                # database.
                limit_s = min(self._settings.write_limit_s, tenure.term.remaining_s / 2)
                async with asyncio.timeout(limit_s):
                    answer = await self._attempts.start(tenure.term, job.intent_id, self._settings.retry_delay_s)
        except TimeoutError:
            # One slow write must neither end the term nor keep a slot; other calls notice a database that is down.
            self._again(running, self._parking.put_off(job.intent_id, "start", unanswered(limit_s)))
            return None
        except SQL_ERRORS as error:
            if is_locked(error):
                self._again(running, self._parking.put_off(job.intent_id, "start", error))
                return None
            tenure.troubled("start", error)
            self._again(running, TROUBLE_PAUSE_S)
            return None
        self._parking.freed(job.intent_id)
        if isinstance(answer, NotNow):
            self._not_now(running, answer)
            return None
        self._metrics.queue_delay(max(0, micros(answer.started_at) - job.due_us) / 1_000_000)
        return answer

    async def _call(self, started: Started) -> Outcome:
        limit_s = self._settings.gateway_limit_s
        try:
            async with asyncio.timeout(limit_s + GATEWAY_SLACK_S):
                return await self._gateway.submit(started, limit_s)
        except TimeoutError:
            return Outcome(Answer.ERROR, error=f"gateway: {no_answer(limit_s)}")
        except Exception as error:  # noqa: BLE001 - the attempt was made, so it is recorded whatever the error
            return Outcome(Answer.ERROR, error=f"{type(error).__name__}: {error}"[:ERROR_CHARS_MAX])

    async def _record(self, running: Running, started: Started, call_s: float) -> None:
        assert running.outcome is not None, "the call has ended"
        outcome = running.outcome
        try:
            recorded = await self._recorded(running, started, outcome)
        except (FenceholdError, Dropped):
            raise
        except Exception as error:  # noqa: BLE001 - perhaps the gateway's text cannot be stored
            outcome = Outcome(Answer.ERROR, error=f"the outcome could not be recorded: {type(error).__name__}")
            recorded = await self._recorded(running, started, outcome)
        self._metrics.attempt(outcome.answer.value, (recorded.finished_at - started.started_at).total_seconds())
        self._gateways.ended(started, outcome, recorded, call_s)
        self._settle(running, recorded, outcome)

    async def _recorded(self, running: Running, started: Started, outcome: Outcome) -> Recorded:
        """Record the outcome and return the intent's new state; try again until it is recorded or the lease is over.

        This also runs while leadership is being given up: the fence protects the write, and a known outcome should be
        kept.
        """
        tenure = running.tenure
        while True:
            pause_s = TROUBLE_PAUSE_S
            try:
                async with self._writes:
                    tenure.term.check()
                    async with asyncio.timeout(self._settings.write_limit_s):
                        answer = await self._attempts.record(
                            tenure.term, started, outcome, self._settings.retry_delay_s
                        )
                self._parking.freed(started.intent_id)
                return answer
            except TimeoutError:
                tenure.trouble("record", Uncertain("The record of an attempt was not answered in time."))
            except SQL_ERRORS as error:
                if is_locked(error):
                    self.in_hand.put_off(running)
                    tenure.wake()  # there may be room for another
                    pause_s = self._parking.put_off(started.intent_id, "record", error)
                else:
                    tenure.trouble("record", error)
            await self._clock.wait(tenure.over, pause_s)

    # --- results ---

    def _not_now(self, running: Running, answer: NotNow) -> None:
        tenure = running.tenure
        if answer.unknown_outcome:
            self._metrics.attempt("unknown", None)
            if answer.status is Status.PENDING:
                self._metrics.retries.inc()
        self._ends.put(tenure, answer.over, deadline_us=running.job.deadline_us)
        if answer.status is not Status.PENDING:
            tenure.schedule.settle(running.job, None)
            return
        floor_us = tenure.store_clock.now_us() + NOT_NOW_PAUSE_US
        due_us = micros(answer.due_at) if answer.due_at is not None else floor_us
        tenure.schedule.settle(running.job, max(due_us, floor_us))

    def _settle(self, running: Running, recorded: Recorded, outcome: Outcome) -> None:
        pending = recorded.status is Status.PENDING and recorded.due_at is not None
        if pending:
            self._metrics.retries.inc()
        due_us = micros(recorded.due_at) if recorded.due_at is not None and pending else None
        running.tenure.schedule.settle(running.job, due_us)
        self._ends.put(running.tenure, recorded.over, outcome, running.job.deadline_us)

    def _fenced_out(self, running: Running) -> None:
        running.is_fenced_out = True
        self._metrics.fenced_out.labels(Phase.RECORD.value if running.is_made else Phase.START.value).inc()
        if running.is_made:
            self.in_hand.lost(running)
        self._facts.fact(
            "attempt_fenced_out", **running.fields(), write=running.phase.value,
            lease_name=running.tenure.term.name, lease_epoch=running.tenure.term.epoch,
        )  # fmt: skip

    def _again(self, running: Running, pause_s: float) -> None:
        """Try to start this attempt again after the pause."""
        tenure = running.tenure
        tenure.schedule.settle(running.job, tenure.store_clock.now_us() + int(pause_s * 1_000_000))

    def _poisoned(self, running: Running, error: Exception) -> None:
        """Handle an unexpected error of an attempt.

        If the start failed, it is tried again later. If the call was made, its outcome is left unrecorded: its start is
        recorded, so the next leader applies the policy, and the provider gets no more calls than allowed.
        """
        pause_s = self._parking.poisoned([running.job.intent_id], running.phase.value, error)
        if running.is_made:
            self.in_hand.lost(running)
        else:
            self._again(running, pause_s)

    # --- room ---

    def _rest_s(self, tenure: Tenure, now_us: int) -> float | None:
        due_us = None if self._resting else tenure.schedule.next_due_us(self.in_hand.load)
        return None if due_us is None else max(0, due_us - now_us) / 1_000_000 + 0.000_5
