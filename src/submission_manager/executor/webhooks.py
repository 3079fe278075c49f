"""Terminal webhooks: told after the end is on record, off the attempts' path; what is owed is swept up by the leader.

At least once to one try each: a crash, or a lease lost, between sending and recording makes the next leader tell again.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass

from fencehold import LeaseLost
from fencehold.ports.clock import Clock
from fencehold.ports.facts import FactSink
from submission_manager.executor.metrics import ExecutorMetrics
from submission_manager.executor.parking import PAUSE_MAX_S, is_locked
from submission_manager.executor.tenure import SQL_ERRORS, Dropped, Tenure
from submission_manager.model.intents import ERROR_CHARS_MAX, WebhookStatus
from submission_manager.model.outcomes import no_answer
from submission_manager.ports import AttemptPort, Over, WebhookPort

WEBHOOK_SLACK_S = 1.0
TROUBLE_PAUSE_S = 1.0
WRITE_LIMIT_S = 10.0
FAILED_EVERY_S = 1.0


@dataclass(frozen=True)
class WebhookSettings:
    """`waiting_max` of one receiver are kept in memory; beyond that the sweep finds them again."""

    concurrency: int = 4  # to one receiver
    waiting_max: int = 200
    limit_s: float = 10.0
    sweep_every_s: float = 30.0
    sweep_rows: int = 100
    read_limit_s: float = 5.0


class Sending:
    def __init__(self, tenure: Tenure, over: Over) -> None:
        self.tenure = tenure
        self.over = over
        self.is_telling = False
        self.task: asyncio.Task[None] | None = None

    @property
    def url(self) -> str:
        return self.over.webhook.url if self.over.webhook is not None else ""


class WebhookDelivery:
    """Each intent at most once at a time; a receiver that hangs holds up its own and no other."""

    def __init__(
        self,
        attempts: AttemptPort,
        webhook: WebhookPort,
        settings: WebhookSettings,
        *,
        writes: asyncio.Semaphore,
        clock: Clock,
        metrics: ExecutorMetrics,
        facts: FactSink,
    ) -> None:
        self._attempts, self._webhook, self._settings = attempts, webhook, settings
        self._writes = writes
        self._clock, self._metrics, self._facts = clock, metrics, facts
        self._in_hand: dict[tuple[int, str], Sending] = {}  # by epoch and intent
        self._turns: dict[str, asyncio.Semaphore] = {}
        self._of_receiver: Counter[str] = Counter()
        self._ended_since: set[str] = set()  # since the sweep last asked: its answer may still show them as owed
        self._untold: Counter[str] = Counter()  # webhooks that failed, by target, since the log last heard of one
        self._told_s: dict[str, float] = {}
        self._progress = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()

    def owe(self, tenure: Tenure, over: Over) -> bool:
        """True if it is in hand just now because of this call; False: nothing is owed, or the sweep will see to it."""
        key = (tenure.term.epoch, over.intent.intent_id)
        if over.webhook is None or key in self._in_hand or tenure.fault.done():
            return False
        url = over.webhook.url
        if self._of_receiver[url] >= self._settings.waiting_max:
            return False
        sending = Sending(tenure, over)
        self._in_hand[key] = sending
        self._of_receiver[url] += 1
        self._idle.clear()
        sending.task = asyncio.create_task(self._deliver(sending), name=f"webhook-{over.intent.intent_id}")
        sending.task.add_done_callback(lambda _: self._ended(key, sending))
        return True

    async def sweep(self, tenure: Tenure) -> None:
        """What an earlier leader owed, and what did not fit in memory: at once, and then every so often."""
        while True:
            tenure.check()
            self._ended_since.clear()
            self._progress.clear()
            try:
                owed = await self._attempts.owed_webhooks(self._settings.sweep_rows, self._settings.read_limit_s)
            except SQL_ERRORS as error:
                tenure.troubled("owed_webhooks", error)
                await asyncio.sleep(TROUBLE_PAUSE_S)
                continue
            for over in owed:
                if over.intent.intent_id not in self._ended_since:
                    self.owe(tenure, over)
            if len(owed) == self._settings.sweep_rows:  # there may be more behind these
                await self._clock.wait(self._progress, self._settings.sweep_every_s)
            else:
                await asyncio.sleep(self._settings.sweep_every_s)

    def abandon(self, tenure: Tenure) -> None:
        """The term is over: one being told may hear it to the end; nothing is written."""
        for sending in [one for one in self._in_hand.values() if one.tenure is tenure]:
            if not sending.is_telling and sending.task is not None:
                sending.task.cancel()

    @property
    def in_hand(self) -> int:
        return len(self._in_hand)

    async def drained(self, limit_s: float) -> bool:
        return await self._clock.wait(self._idle, limit_s)

    async def close(self) -> None:
        tasks = [one.task for one in self._in_hand.values() if one.task is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    # --- one of them ---

    def _ended(self, key: tuple[int, str], sending: Sending) -> None:
        self._in_hand.pop(key, None)
        self._of_receiver[sending.url] -= 1
        if not self._of_receiver[sending.url]:
            del self._of_receiver[sending.url]
            self._turns.pop(sending.url, None)
        self._ended_since.add(sending.over.intent.intent_id)
        self._progress.set()
        if not self._in_hand:
            self._idle.set()

    async def _deliver(self, sending: Sending) -> None:
        intent_id = sending.over.intent.intent_id
        turns = self._turns.setdefault(sending.url, asyncio.Semaphore(self._settings.concurrency))
        try:
            async with turns:
                sending.tenure.check()
                sending.is_telling = True
                began_s = self._clock.now_s()
                error = await self._tell(sending.over)
                sending.is_telling = False
            await self._record(sending, error, self._clock.now_s() - began_s)
        except Dropped:
            return
        except LeaseLost:
            self._metrics.fenced_out("webhook")
        except Exception as fault:  # noqa: BLE001 - one poisonous webhook must not cost the others their leader
            self._facts.fact("webhook_not_recorded", intent_id=intent_id, error=f"{type(fault).__name__}: {fault}")

    async def _tell(self, over: Over) -> str | None:
        limit_s = self._settings.limit_s
        try:
            async with asyncio.timeout(limit_s + WEBHOOK_SLACK_S):
                return await self._webhook.send(over, limit_s)
        except TimeoutError:
            return f"webhook: {no_answer(limit_s)}"
        except Exception as error:  # noqa: BLE001 - best effort: it was tried, and that is recorded
            return f"{type(error).__name__}: {error}"[:ERROR_CHARS_MAX]

    async def _record(self, sending: Sending, error: str | None, seconds: float) -> None:
        term, intent_id = sending.tenure.term, sending.over.intent.intent_id
        status = WebhookStatus.DELIVERED if error is None else WebhookStatus.FAILED
        pause_s = TROUBLE_PAUSE_S
        while True:
            try:
                async with self._writes:
                    term.check()
                    # A database that is silent must not cost the others their leader here: the sweep comes again.
                    async with asyncio.timeout(min(WRITE_LIMIT_S, term.remaining_s / 2)):
                        await self._attempts.record_webhook(term, intent_id, status, error)
                break
            except SQL_ERRORS as fault:
                if is_locked(fault):  # by somebody else: it was told, and is not told again while this leader waits
                    pause_s = min(2 * pause_s, PAUSE_MAX_S)
                else:
                    sending.tenure.troubled("record_webhook", fault)
                await self._clock.wait(sending.tenure.over, pause_s)
        self._metrics.webhook(status.value, seconds)
        if error is not None:
            self._tell_failed(sending, error)

    def _tell_failed(self, sending: Sending, error: str) -> None:
        """Now and then for each target: a receiver that is away fails every one of them."""
        target, now_s = sending.over.intent.submission_target, self._clock.now_s()
        self._untold[target] += 1
        if now_s - self._told_s.get(target, -FAILED_EVERY_S) < FAILED_EVERY_S:
            return
        self._facts.fact(
            "webhook_failed", intent_id=sending.over.intent.intent_id, submission_target=target, error=error,
            failures=self._untold.pop(target),
        )  # fmt: skip
        self._told_s[target] = now_s
