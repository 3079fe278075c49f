"""Sends the webhooks of ended intents: after the end is recorded, without delaying attempts.

The leader also looks in the database at intervals for webhooks still to be sent. Each webhook gets one try, but perhaps
more than once: after a crash or a lost lease between sending and recording, the next leader sends it again.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fencehold import FactSink, LeaseLost
from submission_manager.context import ServiceContext
from submission_manager.executor.parking import PAUSE_MAX_S, is_locked
from submission_manager.executor.tenure import SQL_ERRORS, Dropped, Tenure
from submission_manager.model.intents import ERROR_CHARS_MAX, WebhookStatus
from submission_manager.model.outcomes import no_answer
from submission_manager.ports import AttemptPort, Over, WebhookPort
from submission_manager.rare_log import RareLog

WEBHOOK_SLACK_S = 1.0
TROUBLE_PAUSE_S = 1.0
WRITE_LIMIT_S = 10.0
FAILED_EVERY_S = 1.0


@dataclass(frozen=True)
class WebhookSettings:
    """The limits of the webhooks.

    At most `waiting_max` webhooks of one receiver are kept in memory; the sweep of the database finds the others later.
    """

    concurrency: int = 4  # per receiver
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
    """Sends webhooks: at most one at a time for each intent. A receiver that hangs delays only its own webhooks."""

    def __init__(
        self,
        attempts: AttemptPort,
        webhook: WebhookPort,
        settings: WebhookSettings,
        context: ServiceContext,
    ) -> None:
        self._attempts, self._webhook, self._settings = attempts, webhook, settings
        self._clock, self._metrics, self._facts = context.clock, context.metrics, context.facts
        self._writes = context.writes
        self.in_hand: dict[tuple[int, str], Sending] = {}  # by (epoch, intent id)
        self._turns: dict[str, asyncio.Semaphore] = {}
        self._of_receiver: Counter[str] = Counter()
        self._ended_since: set[str] = set()  # since the last sweep's read began: it may still return them as owed
        self._failed = FailedWebhooks(context.facts)
        self._progress = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()

    def owe(self, tenure: Tenure, over: Over) -> bool:
        """Queue the webhook of an ended intent now. Returns True if it was queued.

        Returns False if the intent has no webhook, if its webhook is queued already, or if it is left to the sweep.
        """
        key = (tenure.term.epoch, over.intent.intent_id)
        if over.webhook is None or key in self.in_hand or tenure.fault.done():
            return False
        url = over.webhook.url
        if self._of_receiver[url] >= self._settings.waiting_max:
            return False
        sending = Sending(tenure, over)
        self.in_hand[key] = sending
        self._of_receiver[url] += 1
        self._idle.clear()
        sending.task = asyncio.create_task(self._deliver(sending), name=f"webhook-{over.intent.intent_id}")
        sending.task.add_done_callback(lambda _: self._ended(key, sending))
        return True

    async def sweep(self, tenure: Tenure) -> None:
        """Send the webhooks that an earlier leader did not send or that did not fit in memory.

        This is done at once, and then at intervals.
        """
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
            if len(owed) == self._settings.sweep_rows:  # there may be more
                await self._clock.wait(self._progress, self._settings.sweep_every_s)
            else:
                await asyncio.sleep(self._settings.sweep_every_s)

    def abandon(self, tenure: Tenure) -> None:
        """Let the webhooks that are being sent end, and cancel the others, because the term is over.

        Nothing is written.
        """
        for sending in [one for one in self.in_hand.values() if one.tenure is tenure]:
            if not sending.is_telling and sending.task is not None:
                sending.task.cancel()

    async def drained(self, limit_s: float) -> bool:
        return await self._clock.wait(self._idle, limit_s)

    async def close(self) -> None:
        tasks = [one.task for one in self.in_hand.values() if one.task is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        self._failed.close()

    # --- one webhook ---

    def _ended(self, key: tuple[int, str], sending: Sending) -> None:
        self.in_hand.pop(key, None)
        self._of_receiver[sending.url] -= 1
        if not self._of_receiver[sending.url]:
            del self._of_receiver[sending.url]
            self._turns.pop(sending.url, None)
        self._ended_since.add(sending.over.intent.intent_id)
        self._progress.set()
        if not self.in_hand:
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
            self._metrics.fenced_out.labels("webhook").inc()
        except Exception as fault:  # noqa: BLE001 - one bad webhook must not end the term
            self._facts.fact("webhook_not_recorded", intent_id=intent_id, error=f"{type(fault).__name__}: {fault}")

    async def _tell(self, over: Over) -> str | None:
        limit_s = self._settings.limit_s
        try:
            async with asyncio.timeout(limit_s + WEBHOOK_SLACK_S):
                return await self._webhook.send(over, limit_s)
        except TimeoutError:
            return f"webhook: {no_answer(limit_s)}"
        except Exception as error:  # noqa: BLE001 - best effort: it was tried, and the failure is recorded
            return f"{type(error).__name__}: {error}"[:ERROR_CHARS_MAX]

    async def _record(self, sending: Sending, error: str | None, seconds: float) -> None:
        term, intent_id = sending.tenure.term, sending.over.intent.intent_id
        status = WebhookStatus.DELIVERED if error is None else WebhookStatus.FAILED
        pause_s = TROUBLE_PAUSE_S
        while True:
            try:
                async with self._writes:
                    term.check()
                    # A database that does not answer must not end the term here: the next sweep tries again.
                    async with asyncio.timeout(min(WRITE_LIMIT_S, term.remaining_s / 2)):
                        await self._attempts.record_webhook(term, intent_id, status, error)
                break
            except SQL_ERRORS as fault:
                if is_locked(fault):  # by another session; the webhook was sent, and is not sent again while this waits
                    pause_s = min(2 * pause_s, PAUSE_MAX_S)
                else:
                    sending.tenure.troubled("record_webhook", fault)
                await self._clock.wait(sending.tenure.over, pause_s)
        self._metrics.webhook(status.value, seconds)
        if error is not None:
            target = sending.over.intent.submission_target
            self._failed.add(target, {"failures": 1}, intent_id=intent_id, submission_target=target, error=error)


class FailedWebhooks(RareLog):
    """Logs failed webhooks at most once a second for each target: when a receiver is down, all of them fail."""

    def __init__(self, facts: FactSink) -> None:
        super().__init__(facts, "webhook_failed", FAILED_EVERY_S)

    def _line(self, kind: str, counts: Mapping[str, int], newest: dict[str, Any]) -> dict[str, Any]:
        return {**newest, **counts}
