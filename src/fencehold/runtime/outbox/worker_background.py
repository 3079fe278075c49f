"""What runs beside a worker on the keeper's thread, where no handler can block it: heartbeat, watch and reaper."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from fencehold.model.errors import ConfigurationError
from fencehold.model.outbox.settings import OutboxSettings, outbox_flag
from fencehold.ports.clock import Clock
from fencehold.ports.events import Events
from fencehold.ports.facts import FactSink
from fencehold.runtime.core.keeper_thread import Host
from fencehold.runtime.election.keeper_services import lasting
from fencehold.runtime.handlers.watch import HandlerWatch
from fencehold.runtime.outbox.claimed_event import Heartbeat
from fencehold.runtime.outbox.reaper import Reaper, is_missing

if TYPE_CHECKING:
    from fencehold.runtime.outbox.worker import Worker

STOP_LIMIT_S = 5.0


class WorkerBackground:
    def __init__(
        self,
        host: Callable[[], Host],
        make_events: Callable[[], Events],
        make_reaper: Callable[[], Reaper] | None,
        settings: Callable[[], OutboxSettings],
        *,
        make_ready: Callable[[], Coroutine[Any, Any, None]],
        clock: Clock,
        facts: FactSink,
    ) -> None:
        self._host, self._make_events, self._make_reaper = host, make_events, make_reaper
        self._make_ready = make_ready
        self._settings, self._clock, self._facts = settings, clock, facts
        self._events: Events | None = None
        self._heartbeat: Heartbeat | None = None
        self._watch: HandlerWatch | None = None
        self._reaper: Reaper | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._started: Host | None = None

    async def start(self, worker: Worker) -> None:
        """Raises if tables or rights are missing, or if there is no reaper anywhere and this worker was to have none.

        Nothing runs if it raises; with a store that is away, try again.
        """
        host = self._host()
        self._started = host
        await host.begin(self._start(worker, asyncio.get_running_loop(), threading.get_ident()))

    async def stop(self) -> None:
        if self._started is not None:
            await self._started.begin(self._stop())

    def nudge(self) -> None:
        if self._started is not None and self._heartbeat is not None:
            self._started.post(self._heartbeat.nudge)

    # --- on the keeper's loop ---

    async def _start(self, worker: Worker, loop: asyncio.AbstractEventLoop, thread_id: int) -> None:
        await self._make_ready()
        self._events = events = self._events or self._make_events()
        limit_s = self._settings().call_limit_s
        stats = await events.admin.stats(limit_s, whole=False)
        await events.admin.identity(limit_s)  # tables of an older version lack it, and are refused here
        if self._make_reaper is None and is_missing(stats.reaper_ran_s_ago, self._settings()):
            raise no_reaper(worker.outbox, stats.reaper_ran_s_ago)
        if self._make_reaper is not None:
            self._reaper = self._make_reaper()
            await self._reaper.begin()
        self._heartbeat = Heartbeat(
            worker.claimed_events, events.port, self._settings, lambda: worker.settings.max_processing_s,
            clock=self._clock, fact=worker.facts, on_lost=worker.lost,
        )  # fmt: skip
        self._run(self._heartbeat.run)
        self._watch = HandlerWatch(worker, loop, thread_id, self._clock)
        self._run(self._watch.run)
        if self._reaper is not None:
            self._run(self._reaper.run)

    def _run(self, run: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._tasks.append(asyncio.create_task(lasting(run, self._facts)))

    async def _stop(self) -> None:
        if self._heartbeat is not None:
            self._heartbeat.close()
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
