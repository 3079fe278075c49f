"""The outbox for programs without an event loop: calls block, and handlers are plain functions on threads."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar, Unpack, overload

from fencehold.model.durations import Duration
from fencehold.model.errors import ConfigurationError, WorkerStuck
from fencehold.model.json_types import Json
from fencehold.model.outbox.rules import Status
from fencehold.model.outbox.settings import WorkerSettings
from fencehold.ports.connections import SyncConnection
from fencehold.ports.events import Claim, EventRow, Filter, Recovered, Stats
from fencehold.runtime.handlers.types import SyncBatchHandler, SyncEventHandler
from fencehold.runtime.options import AddOptions, PurgeOptions, RedriveOptions, RetryOptions, WorkerOptions
from fencehold.runtime.outbox import outbox as _outbox
from fencehold.runtime.outbox import worker as _worker
from fencehold.runtime.outbox.arguments import EventToAdd
from fencehold.sync.background_loop import BackgroundLoop, store_closed

T = TypeVar("T")


STUCK_GRACE_S = 5.0  # in addition to a call's limit: time to hand back the events that can be handed back
PROBE_GRACE_S = 5.0


class Worker:
    """Claims events and runs handlers on them, in `run`; made by `outbox.worker(...)`.

    It handles at most `concurrency` events at once, each under a lease that is renewed. The store records a result only
    while the event's lease is held.
    """

    def __init__(self, loop: BackgroundLoop, worker: _worker.Worker, call_limit_s: float) -> None:
        self._loop, self._worker, self._call_limit_s = loop, worker, call_limit_s
        self._stuck: Future[None] = Future()
        #: Called on the keeper's thread when the worker gives up. Keep it quick: while it runs, this process renews no
        #: lease.
        self.on_stuck: Callable[[WorkerStuck], object] | None = None
        worker.on_stuck = self._gave_up

    @property
    def worker_id(self) -> str:
        return self._worker.worker_id

    @property
    def settings(self) -> WorkerSettings:
        """The settings as they are now: those not set by hand follow the outbox's lease, also when that changes."""
        return self._worker.settings

    @property
    def in_flight(self) -> int:
        """How many handlers are running, including those that lost their lease and do not return."""
        return self._worker.in_flight

    def probe(self) -> None:
        """Ask the store for what the worker needs, on the worker's own connection. Raises the error that it finds.

        Also raises the error of the worker's last request, because this one only reads and the worker must write.
        Raises Unavailable (`loop_blocked`) if the store's event loop does not answer.
        """
        self._loop.run_within(self._call_limit_s + PROBE_GRACE_S, self._worker.probe())

    def _gave_up(self, error: WorkerStuck) -> None:
        self._stuck.set_exception(error)
        if self.on_stuck is not None:
            self.on_stuck(error)

    def run(self) -> None:
        """Block until `stop()` or Ctrl-C, and finish the events in hand first. An outage of the store is waited out.

        Raises ConfigurationError when a retry cannot help (a missing table or right, no reaper), at first contact only:
        once a turn has succeeded, such an error is logged and retried too. Raises WorkerStuck when `give_up_after` is
        set and for that long nothing could be handled, also while an async handler blocks the store's event loop. Then
        end the process with `os._exit`: Python's own exit, and the end of the store's `with` block, would wait for the
        handlers that hang.
        """
        try:
            self._loop.run_unless(self._stuck, self._worker._run_shielded(), self._call_limit_s + STUCK_GRACE_S)
        except KeyboardInterrupt:
            self._worker.stop()
            self._loop.run(self._worker.stopped.wait())
            raise

    def stop(self) -> None:
        """Claim no more, finish the events in hand within the shutdown timeout; then `run` returns.

        Callable on any thread.
        """
        self._worker.stop()

    def pause(self) -> None:
        """Claim nothing until `resume()` is called; the events in hand are finished. Callable on any thread."""
        self._worker.pause()

    def resume(self) -> None:
        self._worker.resume()


class Outbox:
    """Stores events and hands them to workers: each is handled at least once, by one worker at a time.

    Only one worker has the lease to handle an event. The low-level verbs are for programs that decide themselves when
    to claim and renew; `worker()` is for all others. Every verb is one statement. With `tx` an event is written at
    once, in the calling thread, on that connection.
    """

    def __init__(self, loop: BackgroundLoop, outbox: _outbox.Outbox) -> None:
        self._loop, self._outbox = loop, outbox

    def init(self) -> list[str]:
        """Create or upgrade this outbox's tables, as `store.init()` does for every outbox.

        Returns the steps applied.
        """
        return self._loop.run(self._outbox.init())

    def add(
        self, event_type: str, payload: Json, *, tx: SyncConnection | None = None, **fields: Unpack[AddOptions]
    ) -> str:
        """Store an event: it is stored when this returns, or with the caller's transaction `tx`.

        Returns the tracking id. If the store does not answer, the add is tried once more, and then raises Uncertain:
        repeat the call with the same `tracking_id`. An event whose `tracking_id` is stored already is not stored again.
        Events with a higher `priority` are handled sooner; `not_before` is a time or a delay.
        """
        return self.add_many([{"event_type": event_type, "payload": payload, **fields}], tx=tx)[0]

    def add_many(self, events: Iterable[EventToAdd], tx: SyncConnection | None = None) -> list[str]:
        """Store all or none of up to 5,000 events at a time (of all with `tx`). Returns their tracking ids in order.

        Each event is (event_type, payload), or a mapping with the names of `add`'s arguments.
        """
        if tx is not None:
            new = list(events) if isinstance(events, Iterator) else events
            return self._with_id(lambda outbox_id: self._outbox.add_now(new, tx, outbox_id))
        return self._loop.run(self._outbox.add_many(events))

    def first_time(self, event: Claim | str | uuid.UUID, consumer_id: str, *, tx: SyncConnection) -> bool:
        """Record in the caller's `tx` that this consumer has this event.

        True if it was not recorded before, else False. Write the effect of the event in the same transaction: then both
        are stored, or neither is, however often the event is delivered.
        """
        return self._with_id(lambda outbox_id: self._outbox.first_time_now(event, consumer_id, tx, outbox_id))

    def _with_id(self, run: Callable[[str], T]) -> T:
        """Call `run` on this thread with the outbox's id, and return the result.

        It is called once more, with the new id, if the outbox was dropped and created since the id was read.
        """
        known = self._known_id()
        try:
            return run(known)
        except ConfigurationError as error:
            renewed = self._loop.run(self._outbox._identity.after(error, known))
        return run(renewed)

    def _known_id(self) -> str:
        """Return the outbox's id. The first call asks the store, on the store's event loop; the others do not wait."""
        if self._loop.is_stopped:
            raise store_closed()
        known = self._outbox._context.shared.outbox_ids.get(self._outbox.name)
        return self._loop.run(self._outbox.outbox_id()) if known is None else known

    def claim(self, limit: int, worker_id: str, *, lease: Duration | None = None) -> list[Claim]:
        """Claim up to `limit` due events and return them, each under a lease that nobody else has."""
        return self._loop.run(self._outbox.claim(limit, worker_id, lease=lease))

    def renew(self, claims: Claim | Sequence[Claim]) -> list[Claim]:
        """Renew the leases. Returns the claims still held, with their new `locked_until`; stop working on the others.

        Each lease is renewed for the duration given to `claim`, or else for that of the outbox's current lease.
        """
        return self._loop.run(self._outbox.renew(claims))

    def complete(self, claims: Claim | Sequence[Claim]) -> list[Claim]:
        """Complete the events and return those completed.

        An event whose lease is over, or that another holds, is left out.
        """
        return self._loop.run(self._outbox.complete(claims))

    def fail(self, claim: Claim, error: BaseException | str, *, retry: bool = True) -> Status | None:
        """Record a failed try of the event. Without `retry` it becomes a dead letter at once.

        Returns FAILED (to be tried again) or DEAD_LETTER; None if the event was no longer ours.
        """
        return self._loop.run(self._outbox.fail(claim, error, retry=retry))

    def reap(self) -> list[Recovered]:
        """Recover every event whose lease has lapsed, now, and return what became of each."""
        return self._loop.run(self._outbox.reap())

    def stats(self) -> Stats:
        """Return the counts of the events by status, and the age of the oldest due one, from one read of the table."""
        return self._loop.run(self._outbox.stats())

    def find(self, which: Filter | None = None, limit: int = 100) -> list[EventRow]:
        """Read events as they are now, the newest first."""
        return self._loop.run(self._outbox.find(which, limit))

    def redrive(
        self, event_type: str, root_cause: str, limit: int = 1000, **options: Unpack[RedriveOptions]
    ) -> list[str]:
        """Make dead letters of this type PENDING again, at most `per_minute` a minute, with their tries reset.

        Returns their tracking ids. `root_cause` states what was wrong and is fixed; it is stored with each event.
        """
        return self._loop.run(self._outbox.redrive(event_type, root_cause, limit, **options))

    def retry(self, tracking_ids: Sequence[str], root_cause: str = "", **options: Unpack[RetryOptions]) -> list[str]:
        """Make these failed events and dead letters PENDING now.

        Returns the tracking ids of those that were changed.
        """
        return self._loop.run(self._outbox.retry(tracking_ids, root_cause, **options))

    def purge(self, older_than: Duration, **options: Unpack[PurgeOptions]) -> int:
        """Delete finished events, in batches that hold no lock for long. Returns how many events were deleted.

        Dead letters are deleted only if `statuses` names them.
        """
        return self._loop.run(self._outbox.purge(older_than, **options))

    @overload
    def worker(
        self, handler: SyncEventHandler | Mapping[str, SyncEventHandler], *, batch_size: None = None,
        **options: Unpack[WorkerOptions],
    ) -> Worker: ...  # fmt: skip
    @overload
    def worker(
        self, handler: SyncBatchHandler | Mapping[str, SyncBatchHandler], *, batch_size: int,
        **options: Unpack[WorkerOptions],
    ) -> Worker: ...  # fmt: skip
    def worker(self, handler: Any, **options: Any) -> Worker:
        """Return a worker that runs `handler` on the events, not yet running: call its `run`.

        If `handler(event)` returns, the event is done; if it raises, the event is tried again until no tries are left.
        Plain functions run on their own threads. With `batch_size` the handler gets lists of events, and its outcome
        counts for all of them; an event whose try has failed is from then on in its own list. `saturated` returns True
        while what the handlers call is full: then nothing is claimed. `reaper=False` needs a reaper elsewhere.
        `give_up_after`: `run` raises WorkerStuck once the store's event loop has been blocked for so long, or once all
        places have been taken for so long by handlers that lost their leases and do not return.
        """
        worker = self._loop.call(self._outbox.worker, handler, **options)
        return Worker(self._loop, worker, self._outbox.settings.call_limit_s)
