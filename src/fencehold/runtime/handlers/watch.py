"""Logs handlers that do not end, and stops a worker that cannot handle anything any more.

The watch runs on the keeper's thread, so a handler that blocks its event loop cannot delay it. It adds up the time
between its own steps, and counts a long step only in part: if the whole process was frozen, its event loop was not
blocked.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from fencehold.model.errors import WorkerStuck
from fencehold.ports.clock import Clock
from fencehold.runtime.core.renewals import LoopLiveness
from fencehold.runtime.outbox.context import ClaimedEvent, RunningWorker, WorkerContext, event_facts

STEP_S = 1.0
STEPS_PER_LIMIT = 4  # at least this many steps within every limit
STEP_PARTS_MAX = 2  # a step that took longer counts as this many
HUNG_AFTER_S = 1.5  # since its lease was lost: longer than a handler may take to end and its place to become free
WARNINGS_MAX = 10  # per step; the others are logged at later steps
NAMES_MAX = 3  # of handlers that may be blocking the loop
AGAIN_FACTOR = 2  # a warning is repeated when its condition has lasted this many times as long


class HandlerWatch:
    def __init__(
        self, worker: WorkerContext, told: RunningWorker, loop: asyncio.AbstractEventLoop, thread_id: int, clock: Clock
    ) -> None:
        self._worker, self._told, self._loop, self._thread_id, self._clock = worker, told, loop, thread_id, clock
        self._liveness = LoopLiveness(loop, clock)
        self._wake = asyncio.Event()
        self._closed = False
        self._looked_s = clock.now_s()
        self._lost_s: dict[int, float] = {}  # when it first saw each one's lease as lost
        self._silent_s = self._silent_logged_s = 0.0  # how long the loop has not turned
        self._full_s = self._full_next_s = 0.0  # how long all places have been taken by handlers that seem hung
        self._dead_s = 0.0  # how long all places have been taken by handlers whose leases are lost

    async def run(self) -> None:
        while not self._closed:
            await self._clock.wait(self._wake, self._step_s())
            self._wake.clear()
            if not self._closed:
                self._look()

    def stop(self) -> None:
        self._closed = True
        self._wake.set()

    # --- one step ---

    def _step_s(self) -> float:
        settings = self._worker.settings
        limits_s = [settings.slow_after_s, settings.loop_silent_s, settings.give_up_after_s or settings.slow_after_s]
        return min(STEP_S, min(limits_s) / STEPS_PER_LIMIT)

    def _look(self) -> None:
        now_s = self._clock.now_s()
        passed_s = min(now_s - self._looked_s, STEP_PARTS_MAX * self._step_s())
        self._looked_s = now_s
        in_place, strays = list(self._worker.claimed_events.values()), list(self._worker.strays.values())
        self._count(in_place, now_s, passed_s)
        self._lost_s = {id(f): self._lost_s.get(id(f), now_s) for f in (*in_place, *strays) if f.ended_because}
        self._log_handlers(in_place, strays, now_s)
        self._log_loop([*in_place, *strays], now_s)
        self._log_full(in_place, now_s)
        self._give_up(in_place, strays, now_s)
        hung = sum(1 for claimed in in_place if claimed.ended_because) + len(strays)
        self._worker.facts.worker_watched(
            running=len(in_place) + len(strays), hung=hung, silent_s=round(self._silent_s, 3),
            oldest_s=round(max((now_s - claimed.started_s for claimed in (*in_place, *strays)), default=0.0), 3),
        )  # fmt: skip

    def _count(self, in_place: list[ClaimedEvent], now_s: float, passed_s: float) -> None:
        is_silent = self._liveness.silent_s() > 0
        self._liveness.ask()
        settings = self._worker.settings
        is_full = len(in_place) >= settings.concurrency
        is_dead = is_full and all(claimed.ended_because for claimed in in_place)
        seems_hung = is_full and all(f.ended_because or now_s - f.started_s >= settings.stuck_after_s for f in in_place)
        self._silent_s = self._silent_s + passed_s if is_silent else 0.0
        self._dead_s = self._dead_s + passed_s if is_dead else 0.0
        self._full_s = self._full_s + passed_s if seems_hung else 0.0

    # --- what is logged ---

    def _log_handlers(self, in_place: list[ClaimedEvent], strays: list[ClaimedEvent], now_s: float) -> None:
        """Log a warning for each call of a handler that takes long, and again each time it has taken twice as long.

        A call has one warning, however many events it handles. `in_place`: events whose handlers take a place of the
        worker; `strays`: events whose leases were lost and whose handlers run on without a place.
        """
        due = [claimed for claimed in (*in_place, *strays) if self._is_due(claimed, now_s - claimed.started_s)]
        calls = {id(claimed.task): claimed for claimed in reversed(due)}
        for claimed in list(calls.values())[:WARNINGS_MAX]:
            self._warn(claimed, now_s - claimed.started_s, has_place=id(claimed) in self._worker.claimed_events)
            for same in due:
                if same.task is claimed.task:
                    same.warned_s = now_s - same.started_s

    def _is_due(self, claimed: ClaimedEvent, age_s: float) -> bool:
        if claimed.task is None:
            return False
        if claimed.ended_because and not claimed.hung_logged:  # it may be cleaning up
            return self._looked_s - self._lost_s[id(claimed)] >= HUNG_AFTER_S
        return age_s >= max(self._worker.settings.slow_after_s, AGAIN_FACTOR * claimed.warned_s)

    def _warn(self, claimed: ClaimedEvent, age_s: float, has_place: bool) -> None:
        facts, name, age_s = event_facts(self._worker.facts, claimed.claim), self._name(claimed), round(age_s, 1)
        if not claimed.ended_because:
            facts.handler_slow(handler=name, age_s=age_s)
            return
        claimed.hung_logged = True
        place = "taken" if has_place else "free"
        facts.handler_hung(handler=name, age_s=age_s, reason=claimed.ended_because, place=place)

    def _log_loop(self, claimed_events: list[ClaimedEvent], now_s: float) -> None:
        if self._silent_s < max(self._worker.settings.loop_silent_s, AGAIN_FACTOR * self._silent_logged_s):
            self._silent_logged_s = self._silent_logged_s if self._silent_s else 0.0
            return
        self._silent_logged_s = self._silent_s
        running = running_now(self._loop, claimed_events)
        self._worker.facts.worker_loop_blocked(
            silent_s=round(self._silent_s, 1), where=where_is(self._thread_id) or None,
            handler=self._name(running) if running else None,
            age_s=round(now_s - running.started_s, 1) if running else None,
            in_hand=None if running else self._in_hand(claimed_events, now_s) or None,
        )  # fmt: skip

    def _log_full(self, in_place: list[ClaimedEvent], now_s: float) -> None:
        if self._full_s <= self._full_next_s:
            self._full_next_s = self._full_next_s if self._full_s else 0.0
            return
        self._full_next_s = max(self._worker.settings.stuck_after_s, AGAIN_FACTOR * self._full_s)
        self._worker.facts.worker_stuck(**self._oldest(in_place, now_s))

    def _oldest(self, in_place: list[ClaimedEvent], now_s: float) -> dict[str, Any]:
        first = min(in_place, key=lambda claimed: claimed.started_s)
        return {
            "places": len(in_place), "hung": sum(1 for claimed in in_place if claimed.ended_because),
            "handler": self._name(first), "age_s": round(now_s - first.started_s, 1),
        }  # fmt: skip

    # --- a loop that does not turn ---

    def _in_hand(self, claimed_events: list[ClaimedEvent], now_s: float) -> str:
        """Return as text the handlers that may be blocking the loop, the oldest first, each with its age."""
        ages_s: dict[str, float] = {}
        for claimed in sorted(claimed_events, key=lambda claimed: claimed.started_s):
            ages_s.setdefault(self._name(claimed), now_s - claimed.started_s)
        return ", ".join(f"{name} ({age_s:.1f} s)" for name, age_s in list(ages_s.items())[:NAMES_MAX])

    def _name(self, claimed: ClaimedEvent) -> str:
        return self._worker.handler_name(claimed.claim)

    # --- the end ---

    def _give_up(self, in_place: list[ClaimedEvent], strays: list[ClaimedEvent], now_s: float) -> None:
        limit_s = self._worker.settings.give_up_after_s
        if limit_s is None or self._told._stopping:
            return
        if self._silent_s >= limit_s:
            claimed_events = [*in_place, *strays]
            if running := running_now(self._loop, claimed_events):
                where = f" in the handler {self._name(running)}"
            else:
                where = f"; in hand: {in_hand}" if (in_hand := self._in_hand(claimed_events, now_s)) else ""
            self._told._give_up(stuck(f"its event loop has not turned for {self._silent_s:.0f} s{where}"))
        elif self._dead_s >= limit_s:
            oldest = self._oldest(in_place, now_s)
            self._told._give_up(
                stuck(
                    f"all its {oldest['places']} places have been taken for {self._dead_s:.0f} s by handlers that lost "
                    f"their leases and do not return; the oldest, {oldest['handler']}, has run for {oldest['age_s']} s"
                )
            )


def blocked_by(worker: WorkerContext, loop: asyncio.AbstractEventLoop, thread_id: int) -> str:
    """Return as text what blocks the event loop: the handler that it runs, or else the line of code.

    Any thread may call it.
    """
    running = running_now(loop, [*list(worker.claimed_events.values()), *list(worker.strays.values())])
    if running is not None:
        return f"the handler {worker.handler_name(running.claim)} blocks it"
    where = where_is(thread_id)
    return f"it is at {where}" if where else ""


def running_now(loop: asyncio.AbstractEventLoop, claimed_events: list[ClaimedEvent]) -> ClaimedEvent | None:
    """Return the event whose handler the loop is running now. None if it runs another task, even one a handler made."""
    try:
        task = asyncio.current_task(loop)
    except RuntimeError:
        return None
    return next((claimed for claimed in claimed_events if claimed.task is task), None) if task else None


def where_is(thread_id: int) -> str:
    """Return where a thread is: file, line and function of its innermost frame; empty if there is no such thread."""
    frame = sys._current_frames().get(thread_id)
    if frame is None:
        return ""
    return f"{frame.f_code.co_filename}:{frame.f_lineno} in {frame.f_code.co_name}"


def stuck(why: str) -> WorkerStuck:
    return WorkerStuck(
        f"The worker cannot handle anything any more: {why}.",
        hint="Start the process anew; its events are recovered when their leases have lapsed.",
    )
