"""The schedule for the outbox: processes with our own Outbox and Worker, and the troubles they get.

Handlers return, raise, are slow, hang and block; workers are paused, cancelled and restarted; an operator redrives.
"""

from __future__ import annotations

import asyncio
import random
import uuid
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from fencehold.backends.memory.backend import Shelf
from fencehold.backends.memory.outbox.events import REDRIVABLE, MemoryEventAdmin
from fencehold.model.errors import Unavailable, Uncertain, WorkerStuck
from fencehold.model.outbox.rules import RULES
from fencehold.model.outbox.settings import OutboxSettings, outbox_settings
from fencehold.ports.events import Claim, Filter
from fencehold.runtime.core.keeper_thread import STOP_LIMIT_S
from fencehold.runtime.handlers.handlers import Reject
from fencehold.runtime.options import WorkerOptions
from fencehold.runtime.outbox.context import OutboxContext, reaper_lease
from fencehold.runtime.outbox.outbox import LIMIT_S, Outbox
from fencehold.runtime.outbox.worker import Worker
from fencehold.testing.simulation.network import STUTTER_S_MAX, Line, at_once, new_shelf
from fencehold.testing.simulation.outbox.referee import JudgedEvents, OutboxReferee, WorkerNode
from fencehold.testing.simulation.process import TROUBLE_S
from fencehold.testing.simulation.schedule import LIVENESS_SLACK_S, NODES, Schedule, Trouble

OUTBOX = "outbox"
EVENTS_MAX = 5  # that each process adds
ADD_EVERY_S = 4.0
AGGREGATES = ("a", "b", None)
POISON, INNOCENT = "poison", "innocent"
POISONED = 0.15  # of the events
QUICK_S_MAX = 0.5
STUBBORN_S_MAX = 3.0
CALLS_OF_A_TURN = 3  # at most; if one of them fails, a pause of a second follows
MAX_RETRIES = 3
RETRY_S_MAX = 3.0
POLL_S = 1.0


class OutboxNode(WorkerNode):
    def __init__(
        self, name: str, line: Line, shelf: Shelf, settings: OutboxSettings, referee: OutboxReferee, rng: random.Random
    ) -> None:
        super().__init__(name, line, shelf, settings.call_limit_s, referee, rng)
        self.reaps_since_s: float | None = None
        self._reaper_epoch = 0
        self.workers: list[Worker] = []  # the last one, and those before it that have events in hand
        self.confirmed: list[str] = []  # what was added for sure, by tracking ids
        self.concurrency = 1 + int(3 * self._draw())
        self._settings, self._referee = settings, referee
        self._outbox = Outbox(OUTBOX, settings, OutboxContext(self.context))
        self._has_batches, self._max_processing_s = self._draw() < 0.25, settings.lease_s * (1 + 2 * self._draw())
        self._behaviours: tuple[tuple[float, Callable[[], Awaitable[None]]], ...] = (
            (8, self._quickly), (3, self._for_long), (1, self._for_too_long), (1, self._stubbornly),
            (1, self._blocking), (2, self._raising), (0.5, self._rejecting), (0.5, self._cancelling),
        )  # fmt: skip
        self._running: asyncio.Task[None] | None = None
        self._works: asyncio.Task[None]
        self._adds: asyncio.Task[None]
        self._is_stopping = False
        referee.nodes[name] = self

    def sending(self, verb: str, args: tuple[Any, ...]) -> None:
        if verb == "renew":
            self._referee.renewing(self, args[0], self._max_processing_s)

    def answered(self, verb: str, args: tuple[Any, ...], answer: Any) -> None:
        if verb == "renew":
            self._referee.refused |= {key for key in args[0] if key not in answer}

    def heard(self, event: str, fields: dict[str, Any]) -> None:
        if event == "leader_acquired":
            self.reaps_since_s, self._reaper_epoch = self._loop.time(), fields["lease_epoch"]
        elif event in {"leader_lost", "leader_releasing"} and fields["lease_epoch"] == self._reaper_epoch:
            self.reaps_since_s = None

    # --- life ---

    async def start(self) -> None:
        self._is_stopping = False
        self._works = asyncio.create_task(self._working(), name=f"{self.name}-works")
        self._adds = asyncio.create_task(self._adding(), name=f"{self.name}-adds")

    async def stop(self) -> None:
        self._is_stopping = True
        self._adds.cancel()
        self.workers[-1].stop()
        calls_s = CALLS_OF_A_TURN * (self.call_limit_s + STUTTER_S_MAX)
        limit_s = self.workers[-1].shutdown_timeout_s + calls_s + Worker.pause_s_max + STOP_LIMIT_S
        await self.within(limit_s, "the worker", self._works)

    async def close_parts(self) -> None:
        await self._outbox.close()

    async def _working(self) -> None:
        """Run a worker until this process stops. Start another worker when it gives up or its `run` is cancelled."""
        while not self._is_stopping:
            worker = self._worker()
            self.workers = [one for one in self.workers if one._context.claimed_events] + [worker]
            self._running = asyncio.create_task(worker.run(), name=f"{self.name}-worker")
            await asyncio.wait([self._running])
            error = None if self._running.cancelled() else self._running.exception()
            if error is not None and not isinstance(error, WorkerStuck):
                self._fail(f"{self.name}: the worker raised {error!r}")

    def _worker(self) -> Worker:
        lease_s, draw = self._settings.lease_s, self._draw
        options: WorkerOptions = {
            "worker_id": self.name, "concurrency": self.concurrency, "max_processing": self._max_processing_s,
            "shutdown_timeout": lease_s * (0.1 + 0.9 * draw()), "give_up_after": 2 * lease_s if draw() < 0.2 else None,
        }  # fmt: skip
        if self._has_batches:
            return self._outbox.worker(self._handle_together, batch_size=min(2, self.concurrency), **options)
        return self._outbox.worker(self._handle, **options)

    def cancel_run(self) -> None:
        """Cancel the task that runs the worker's `run`."""
        if self._running is not None:
            self._trace.note(self.name, "cancels its worker")
            self._running.cancel()

    def pause_or_resume(self) -> None:
        if self.workers:
            self.workers[-1].pause() if self._draw() < 0.5 else self.workers[-1].resume()

    # --- producers ---

    async def _adding(self) -> None:
        while len(self.confirmed) < EVENTS_MAX and self._loop.time() < TROUBLE_S:
            await asyncio.sleep(self._draw() * ADD_EVERY_S)
            tracking_id = str(uuid.UUID(int=self._rng.getrandbits(128)))
            while not await self._added(tracking_id):
                continue
            self.confirmed.append(tracking_id)

    async def _added(self, tracking_id: str) -> bool:
        what = POISON if self._draw() < POISONED else INNOCENT
        try:
            await self._outbox.add("made", what, aggregate_id=self._rng.choice(AGGREGATES), tracking_id=tracking_id)
        except (Unavailable, Uncertain):
            return False
        if tracking_id not in self._shelf.outbox(OUTBOX).by_tracking_id:
            self._fail(f"{self.name}: event {tracking_id} was added, and is not there")
        return True

    # --- handlers ---

    async def _handle(self, event: Claim) -> None:
        await self._handle_together([event])

    async def _handle_together(self, events: list[Claim]) -> None:
        if self._loop.time() < TROUBLE_S:
            behaviours, weights = [what for _, what in self._behaviours], [often for often, _ in self._behaviours]
            await self._rng.choices(behaviours, weights)[0]()
        else:
            await self._quickly()
        if any(event.payload == POISON for event in events):
            raise RuntimeError("poison")
        self._referee.returned |= {(event.id, event.token) for event in events}

    async def _quickly(self) -> None:
        await asyncio.sleep(self._draw() * QUICK_S_MAX)

    async def _for_long(self) -> None:
        await asyncio.sleep(self._draw() * self._max_processing_s)

    async def _for_too_long(self) -> None:
        await asyncio.sleep((1 + self._draw()) * self._max_processing_s)

    async def _stubbornly(self) -> None:
        """Handle an event for longer than is allowed; a cancel shortens that, but does not end it at once."""
        try:
            await self._for_too_long()
        except asyncio.CancelledError:
            await asyncio.sleep(self._draw() * STUBBORN_S_MAX)

    async def _blocking(self) -> None:
        self.block(self._settings.lease_s * (0.2 + 2 * self._draw()))
        await asyncio.sleep(0)

    async def _raising(self) -> None:
        await self._quickly()
        raise RuntimeError("bad luck")

    async def _rejecting(self) -> None:
        raise Reject("no other try will do")

    async def _cancelling(self) -> None:
        raise asyncio.CancelledError


class OutboxSchedule(Schedule):
    rules = frozenset(rule.id for rule in RULES)
    settles_s = LIMIT_S
    referee: OutboxReferee
    nodes: Sequence[OutboxNode]

    def __init__(self, seed: int, trace: bool) -> None:
        super().__init__(seed, trace)
        self.settings = self._some_settings()
        self.referee = OutboxReferee(self.loop, self.trace, self.settings)
        self.shelf = new_shelf(self.loop)
        self.events = JudgedEvents(self.shelf.now, self.referee)
        self.shelf.outboxes[OUTBOX] = self.events
        self.rules_fired = self.events.fired
        self.nodes = [
            OutboxNode(name, self.line(), self.shelf, self.settings, self.referee, self.rng) for name in NODES
        ]

    def _some_settings(self) -> OutboxSettings:
        return outbox_settings(
            lease=self.lease_s, max_retries=MAX_RETRIES, retry_base=0.5, retry_cap=RETRY_S_MAX,
            in_order=self.draw() < 0.3,
        )  # fmt: skip

    def troubles(self) -> tuple[Trouble, ...]:
        return (
            (0.25, self.pauses), (0.10, self.blocks), (0.20, self.gets_no_answers), (0.06, self.store_restarts),
            (0.12, self.restarts), (0.07, lambda: self._node().cancel_run()),
            (0.05, lambda: self._node().pause_or_resume()),
            (0.05, self._redrives), (0.05, self.events.notify), (0.05, self.events.lapse_early),
        )  # fmt: skip

    # --- calm ---

    async def judge_calm(self) -> None:
        for node in self.nodes:
            node.workers[-1].resume()
        reaper_s = self.lease_s * 1.5 + 2 * self.settings.call_limit_s
        await self.wait_for(lambda: any(n.reaps_since_s is not None for n in self.nodes), reaper_s, "nobody reaps")
        slowest_s = max(node.workers[-1].settings.max_processing_s for node in self.nodes)
        tries_s = MAX_RETRIES * (RETRY_S_MAX * 1.1 + POLL_S + QUICK_S_MAX)
        turns = len([one for one in self.referee.records.values() if not one.is_final])
        queue_s = turns * (tries_s if self.settings.in_order else QUICK_S_MAX)
        limit_s = self.lease_s + self.settings.reap_every_s + slowest_s + tries_s + queue_s + LIVENESS_SLACK_S
        records = self.referee.records
        await self.wait_for(lambda: all(r.is_final for r in records.values()), limit_s, "events are unfinished")

    def judge_left(self) -> None:
        now = self.shelf.now()
        lost = [each for node in self.nodes for each in node.confirmed if each not in self.events.by_tracking_id]
        held = [row.id for row in self.events.rows.values() if row.stored.locked_until is not None]
        reaper = self.shelf.rows.get(reaper_lease(OUTBOX))
        reapers = [reaper.holder_id] if reaper is not None and reaper.expires_at > now else []
        for what, found in (
            ("events are gone", lost),
            ("events are held", held),
            ("the reaper's lease is held", reapers),
        ):
            self.referee.must(not found, f"{what}: {found}")

    # --- troubles ---

    def _node(self) -> OutboxNode:
        return self.rng.choice(self.nodes)

    def _redrives(self) -> None:
        """Redrive, as an operator does, one event that is a dead letter or has failed: it will be tried again."""
        self.trace.note("store", "the operator redrives an event")
        at_once(MemoryEventAdmin(self.events).redrive(Filter(REDRIVABLE), "mended", 1, 0.0, 0.0))
