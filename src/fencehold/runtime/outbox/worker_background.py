"""What runs beside a worker on the keeper's thread, where no handler can block it: renewals, watch and reaper."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from fencehold.model.errors import ConfigurationError
from fencehold.model.outbox.settings import outbox_flag
from fencehold.ports.events import Events
from fencehold.runtime.core.keeper_thread import KeeperLoop
from fencehold.runtime.election.keeper_services import lasting
from fencehold.runtime.handlers import watch
from fencehold.runtime.handlers.watch import HandlerWatch
from fencehold.runtime.outbox import event_renewals
from fencehold.runtime.outbox.event_renewals import EventRenewals
from fencehold.runtime.outbox.reaper import Reaper, is_missing
from fencehold.runtime.outbox.worker_context import WorkerContext

STOP_LIMIT_S = 5.0


class WorkerCalls(watch.Told, event_renewals.Told, Protocol):
    """What a worker is told on the keeper's thread."""


class WorkerBackground:
    def __init__(self, worker: WorkerContext, told: WorkerCalls, *, with_reaper: bool) -> None:
        self._worker, self._told, self._with_reaper = worker, told, with_reaper
        self._outbox = worker.outbox
        self._events: Events | None = None
        self._renewals: EventRenewals | None = None
        self._watch: HandlerWatch | None = None
        self._reaper: Reaper | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._started: KeeperLoop | None = None

    async def start(self) -> None:
        """Raises if tables or rights are missing, or if there is no reaper anywhere and this worker was to have none.

        Nothing runs if it raises; with a store that is away, try again.
        """
        self._started = keeper_loop = self._outbox.keeper_loop
        await keeper_loop.begin(self._start(asyncio.get_running_loop(), threading.get_ident()))

    async def stop(self) -> None:
        """It goes on to the end, even if the caller is cancelled or its event loop ends."""
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
        if self._with_reaper:
            self._reaper = Reaper(self._outbox, self._worker.worker_id)
            await self._reaper.begin()
        self._renewals = EventRenewals(self._worker, events.port, self._told)
        self._run(self._renewals.run)
        self._watch = HandlerWatch(self._worker, self._told, loop, thread_id, self._outbox.clock)
        self._run(self._watch.run)
        if self._reaper is not None:
            self._run(self._reaper.run)

    def _run(self, run: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._tasks.append(asyncio.create_task(lasting(run, self._outbox.context.store.facts)))

    async def _stop(self) -> None:
        if self._renewals is not None:
            self._renewals.stop()
        if self._watch is not None:
            self._watch.close()
        if self._reaper is not None:
            self._reaper.stop()
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=STOP_LIMIT_S)
            for task in late:
                task.cancel()
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
