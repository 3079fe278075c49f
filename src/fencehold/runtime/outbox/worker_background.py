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
from fencehold.runtime.handlers.watch import HandlerWatch, Watched
from fencehold.runtime.outbox.access import OutboxAccess
from fencehold.runtime.outbox.claimed_event import EventHolder, EventRenewals
from fencehold.runtime.outbox.reaper import Reaper, is_missing

STOP_LIMIT_S = 5.0


class WorkerUnderWatch(Watched, EventHolder, Protocol):
    """A worker, as what runs beside it sees it."""


class WorkerBackground:
    def __init__(self, outbox: OutboxAccess, worker_id: str, *, with_reaper: bool) -> None:
        self._outbox, self._worker_id, self._with_reaper = outbox, worker_id, with_reaper
        self._events: Events | None = None
        self._renewals: EventRenewals | None = None
        self._watch: HandlerWatch | None = None
        self._reaper: Reaper | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._started: KeeperLoop | None = None

    async def start(self, worker: WorkerUnderWatch) -> None:
        """Raises if tables or rights are missing, or if there is no reaper anywhere and this worker was to have none.

        Nothing runs if it raises; with a store that is away, try again.
        """
        self._started = keeper_loop = self._outbox.keeper_loop
        await keeper_loop.begin(self._start(worker, asyncio.get_running_loop(), threading.get_ident()))

    async def stop(self) -> None:
        if self._started is not None:
            await self._started.begin(self._stop())

    def nudge(self) -> None:
        if self._started is not None and self._renewals is not None:
            self._started.post(self._renewals.nudge)

    # --- on the keeper's loop ---

    async def _start(self, worker: WorkerUnderWatch, loop: asyncio.AbstractEventLoop, thread_id: int) -> None:
        await self._outbox.make_tables()
        self._events = events = self._events or self._outbox.make_events()
        limit_s = self._outbox.settings.call_limit_s
        stats = await events.admin.stats(limit_s, whole=False)
        await events.admin.identity(limit_s)  # tables of an older version lack it, and are refused here
        if not self._with_reaper and is_missing(stats.reaper_ran_s_ago, self._outbox.settings):
            raise no_reaper(self._outbox.name, stats.reaper_ran_s_ago)
        if self._with_reaper:
            self._reaper = Reaper(self._outbox, self._worker_id)
            await self._reaper.begin()
        self._renewals = EventRenewals(worker, events.port, self._outbox.clock)
        self._run(self._renewals.run)
        self._watch = HandlerWatch(worker, loop, thread_id, self._outbox.clock)
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
