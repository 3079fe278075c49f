"""The outbox for programs without an event loop: calls that block, handlers that are plain functions on threads."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar, Unpack, overload

from fencehold.model.durations import Duration
from fencehold.model.errors import ConfigurationError, WorkerStuck
from fencehold.model.json_types import Json
from fencehold.model.outbox.events import Status
from fencehold.model.outbox.settings import WorkerSettings
from fencehold.ports.connections import SyncConnection
from fencehold.ports.events import Claim, EventRow, Filter, Recovered, Stats
from fencehold.runtime.handlers.types import SyncBatchHandler, SyncEventHandler
from fencehold.runtime.options import AddOptions, PurgeOptions, RedriveOptions, RetryOptions, WorkerOptions
from fencehold.runtime.outbox import outbox as _outbox
from fencehold.runtime.outbox import worker as _worker
from fencehold.runtime.outbox.arguments import EventToAdd
from fencehold.sync.background_loop import BackgroundLoop

T = TypeVar("T")


STUCK_GRACE_S = 5.0  # beside a call's limit: to hand back what can be handed back
PROBE_GRACE_S = 5.0


class Worker:
    """`run` blocks until `stop()` or Ctrl-C, which finishes what is in hand first.

    With `give_up_after` it raises WorkerStuck, also while an async handler blocks the store's event loop. Then end the
    process by `os._exit`: Python's own exit, and the end of the store's `with` block, would wait for what hangs.
    """

    def __init__(self, loop: BackgroundLoop, worker: _worker.Worker, call_limit_s: float) -> None:
        self._loop, self._worker, self._call_limit_s = loop, worker, call_limit_s
        self._stuck: Future[None] = Future()
        #: Called when it gives up, from the keeper's thread: while it runs, no lease of this process is renewed.
        self.on_stuck: Callable[[WorkerStuck], object] | None = None
        worker.on_stuck = self._gave_up

    @property
    def worker_id(self) -> str:
        return self._worker.worker_id

    @property
    def settings(self) -> WorkerSettings:
        return self._worker.settings

    @property
    def in_flight(self) -> int:
        """Handlers that run, those too whose lease is lost and that do not return."""
        return self._worker.in_flight

    def probe(self) -> None:
        """Ask the store for what every turn needs; raises what is wrong, such as `loop_blocked`."""
        self._loop.run_within(self._call_limit_s + PROBE_GRACE_S, self._worker.probe())

    def _gave_up(self, error: WorkerStuck) -> None:
        self._stuck.set_exception(error)
        if self.on_stuck is not None:
            self.on_stuck(error)

    def run(self) -> None:
        try:
            self._loop.run_unless(self._stuck, self._run(), self._call_limit_s + STUCK_GRACE_S)
        except KeyboardInterrupt:
            self._worker.stop()
            self._loop.run(self._worker.wait_stopped())
            raise

    async def _run(self) -> None:
        await self._worker.run_shielded()

    def stop(self) -> None:
        self._worker.stop()

    def pause(self) -> None:
        self._worker.pause()

    def resume(self) -> None:
        self._worker.resume()


class Outbox:
    """With `tx` the event is written at once, in the calling thread, on that connection."""

    def __init__(self, loop: BackgroundLoop, outbox: _outbox.Outbox) -> None:
        self._loop, self._outbox = loop, outbox

    def init(self) -> list[str]:
        return self._loop.run(self._outbox.init())

    def add(
        self, event_type: str, payload: Json, *, tx: SyncConnection | None = None, **fields: Unpack[AddOptions]
    ) -> str:
        return self.add_many([{"event_type": event_type, "payload": payload, **fields}], tx=tx)[0]

    def add_many(self, events: Iterable[EventToAdd], tx: SyncConnection | None = None) -> list[str]:
        if tx is not None:
            new = list(events) if isinstance(events, Iterator) else events
            return self._with_id(lambda outbox_id: self._outbox.add_now(new, tx, outbox_id))
        return self._loop.run(self._outbox.add_many(events))

    def first_time(self, event: Claim | str | uuid.UUID, consumer_id: str, *, tx: SyncConnection) -> bool:
        return self._with_id(lambda outbox_id: self._outbox.first_time_now(event, consumer_id, tx, outbox_id))

    def _with_id(self, run: Callable[[str], T]) -> T:
        """On the calling thread; once more if the outbox has been dropped and made anew since its id was asked for."""
        known = self._loop.run(self._outbox.outbox_id())
        try:
            return run(known)
        except ConfigurationError as error:
            renewed = self._loop.run(self._outbox._identity.after(error, known))
        return run(renewed)

    def claim(self, limit: int, worker_id: str, *, lease: Duration | None = None) -> list[Claim]:
        return self._loop.run(self._outbox.claim(limit, worker_id, lease=lease))

    def renew(self, claims: Claim | Sequence[Claim]) -> list[Claim]:
        return self._loop.run(self._outbox.renew(claims))

    def complete(self, claims: Claim | Sequence[Claim]) -> list[Claim]:
        return self._loop.run(self._outbox.complete(claims))

    def fail(self, claim: Claim, error: BaseException | str, *, retry: bool = True) -> Status | None:
        return self._loop.run(self._outbox.fail(claim, error, retry=retry))

    def reap(self) -> list[Recovered]:
        return self._loop.run(self._outbox.reap())

    def stats(self) -> Stats:
        return self._loop.run(self._outbox.stats())

    def find(self, which: Filter | None = None, limit: int = 100) -> list[EventRow]:
        return self._loop.run(self._outbox.find(which, limit))

    def redrive(
        self, event_type: str, root_cause: str, limit: int = 1000, **options: Unpack[RedriveOptions]
    ) -> list[str]:
        return self._loop.run(self._outbox.redrive(event_type, root_cause, limit, **options))

    def retry(self, tracking_ids: Sequence[str], root_cause: str = "", **options: Unpack[RetryOptions]) -> list[str]:
        return self._loop.run(self._outbox.retry(tracking_ids, root_cause, **options))

    def purge(self, older_than: Duration, **options: Unpack[PurgeOptions]) -> int:
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
        """Takes the settings of the async `outbox.worker`; plain functions run on threads of their own."""

        async def make() -> _worker.Worker:
            return self._outbox.worker(handler, **options)

        return Worker(self._loop, self._loop.run(make()), self._outbox.settings.call_limit_s)
