"""The parts of a worker on the keeper's thread, where no handler can block them: renewals, watch and reaper."""

from __future__ import annotations

import asyncio
import datetime as dt
import threading
from collections.abc import Sequence

from fencehold.model.errors import ConfigurationError, FenceholdError
from fencehold.model.outbox.settings import outbox_flag
from fencehold.model.settings import HEARTBEAT_PART
from fencehold.ports.events import EventPort, Events
from fencehold.runtime.core.keeper_thread import KeeperLoop, ended, lasting
from fencehold.runtime.core.renewals import Heartbeats
from fencehold.runtime.handlers.watch import HandlerWatch
from fencehold.runtime.outbox.context import ClaimedEvent, RunningWorker, WorkerContext
from fencehold.runtime.outbox.reaper import Reaper, is_missing

UNPROVEN = "heartbeat_failed"


class EventRenewals(Heartbeats[ClaimedEvent]):
    """Renews the leases of all events that one worker has in hand.

    If the store does not answer, the events whose renewal was due are lost at once, not at their deadlines.
    """

    def __init__(self, worker: WorkerContext, port: EventPort, told: RunningWorker) -> None:
        super().__init__(worker.claimed_events, worker.clock)
        self._worker, self._port, self._told = worker, port, told

    def _every_s(self, kept: ClaimedEvent) -> float:
        """Return the seconds between two renewals of this event's lease.

        They depend on the lease that the event was granted: the setting may have changed since.
        """
        lease_part_s = HEARTBEAT_PART * (kept.deadline_s - kept.renewed_s)
        return min(self._worker.outbox.settings.heartbeat_every_s, lease_part_s)

    def _due_s(self, kept: ClaimedEvent) -> float:
        return kept.renewed_s + self._every_s(kept)

    def _look_every_s(self) -> float:
        """Return the longest time between two turns: short enough for events claimed meanwhile.

        A claim does not wake this thread.
        """
        return min(self._worker.outbox.settings.heartbeat_every_s / 2, self._worker.settings.max_processing_s / 4)

    def _max_s(self, kept: ClaimedEvent) -> float:
        return self._worker.settings.max_processing_s

    async def _ask(self, due: Sequence[ClaimedEvent]) -> Sequence[tuple[dt.datetime, float] | None]:
        settings = self._worker.outbox.settings
        renewed = await self._port.renew([kept.key for kept in due], settings.lease_s, settings.call_limit_s)
        untils = (renewed.get(kept.key) for kept in due)
        return [None if until is None else (until, settings.trusted_s) for until in untils]

    def _record(self, kept: ClaimedEvent, answer: tuple[dt.datetime, float], sent_s: float) -> bool:
        until, trusted_s = answer
        kept.claim.locked_until = until
        return kept.extend(sent_s, trusted_s)

    def _log_heartbeat(self, sent: int, refused: int) -> None:
        self._worker.facts.worker_heartbeat(sent=sent, refused=refused)

    def _unanswered(self, due: Sequence[ClaimedEvent], error: FenceholdError) -> None:
        self._worker.facts.worker_heartbeat_failed(held=len(due), sql_error=str(error))
        for kept in due:
            self._lose(kept, UNPROVEN)

    def _lost(self, kept: ClaimedEvent) -> None:
        self._told._lost(kept)


class WorkerBackground:
    """Starts and stops the parts of one worker that run on the keeper's thread.

    `told` is that worker: it is called when an event's lease is lost.
    """

    def __init__(self, worker: WorkerContext, told: RunningWorker, *, with_reaper: bool) -> None:
        self._worker, self._told, self._with_reaper = worker, told, with_reaper
        self._outbox = worker.outbox
        self._events: Events | None = None
        self._renewals: EventRenewals | None = None
        self._parts: list[EventRenewals | HandlerWatch | Reaper] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._started: KeeperLoop | None = None

    async def start(self) -> None:
        """Start the renewals, the watch and the reaper, if the worker has one.

        Raises if the store does not answer, if tables or rights are missing, or if the worker has no reaper and none
        runs elsewhere. In these cases nothing is running afterwards, and `start` may be called again.
        """
        self._started = keeper_loop = self._outbox.context.store.keeper_loop
        await keeper_loop.begin(self._start(asyncio.get_running_loop(), threading.get_ident()))

    async def stop(self) -> None:
        """Stop all parts and wait for their end. They stop even if the caller is cancelled or its event loop ends."""
        if self._started is not None:
            await asyncio.shield(self._started.begin(self._stop()))

    def nudge(self) -> None:
        if self._started is not None and self._renewals is not None:
            self._started.post(self._renewals.nudge)

    # --- on the keeper's loop ---

    async def _start(self, loop: asyncio.AbstractEventLoop, thread_id: int) -> None:
        await self._outbox.make_tables()
        self._events = events = self._events or self._outbox.make_events()
        limit_s = self._outbox.settings.call_limit_s
        stats = await events.admin.stats(limit_s, whole=False)
        await events.in_tx.identity(limit_s)  # tables of an older version lack it, and are refused here
        if not self._with_reaper and is_missing(stats.reaper_ran_s_ago, self._outbox.settings):
            raise no_reaper(self._outbox.name, stats.reaper_ran_s_ago)
        reapers = [Reaper(self._outbox, self._worker.worker_id)] if self._with_reaper else []
        for reaper in reapers:
            await reaper.begin()
        self._renewals = EventRenewals(self._worker, events.port, self._told)
        watch = HandlerWatch(self._worker, self._told, loop, thread_id, self._outbox.clock)
        self._parts = [self._renewals, watch, *reapers]
        facts = self._outbox.context.store.facts
        self._tasks = [asyncio.create_task(lasting(part.run, facts)) for part in self._parts]

    async def _stop(self) -> None:
        for part in self._parts:
            part.stop()
        await ended(self._tasks)
        if self._events is not None:
            await self._events.close()


def no_reaper(outbox: str, ran_s_ago: float | None) -> ConfigurationError:
    when = "has never run" if ran_s_ago is None else f"last ran {ran_s_ago:.0f} s ago"
    return ConfigurationError(
        f"The reaper of outbox {outbox!r} {when}: events of a worker that dies would be stuck for ever.",
        hint="Let the worker bring its own (the default; reaper=False and --no-reaper turn it off), or run "
        f"`fencehold reaper{outbox_flag(outbox)}` somewhere.",
        code="no_reaper",
    )
