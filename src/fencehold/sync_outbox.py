"""The outbox for programs without an event loop: calls that block, handlers that are plain functions on threads."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from fencehold.model.durations import Duration
from fencehold.model.events import Status
from fencehold.ports.events import Claim, EventRow, Filter, Recovered, Stats
from fencehold.runtime import outbox as _outbox
from fencehold.runtime import worker as _worker

T = TypeVar("T")


class Loop(Protocol):
    def run(self, work: Coroutine[Any, Any, T]) -> T: ...


class Worker:
    """`run` blocks until `stop()` or Ctrl-C, which finishes what is in hand first."""

    def __init__(self, loop: Loop, worker: _worker.Worker) -> None:
        self._loop, self._worker = loop, worker

    def run(self) -> None:
        try:
            self._loop.run(self._run())
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

    def __init__(self, loop: Loop, outbox: _outbox.Outbox) -> None:
        self._loop, self._outbox = loop, outbox

    def init(self) -> list[str]:
        return self._loop.run(self._outbox.init())

    def add(self, event_type: str, payload: Any, *, tx: Any = None, **fields: Any) -> str:
        return self.add_many([{"event_type": event_type, "payload": payload, **fields}], tx=tx)[0]

    def add_many(self, events: Iterable[Any], tx: Any = None) -> list[str]:
        if tx is not None:
            return self._outbox.add_now(events, tx, self._loop.run(self._outbox.outbox_id(in_tx=True)))
        return self._loop.run(self._outbox.add_many(events))

    def first_time(self, event: Claim | str | uuid.UUID, consumer_id: str, *, tx: Any) -> bool:
        return self._outbox.first_time_now(event, consumer_id, tx, self._loop.run(self._outbox.outbox_id(in_tx=True)))

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

    def redrive(self, event_type: str, root_cause: str, limit: int = 1000, **options: Any) -> list[str]:
        return self._loop.run(self._outbox.redrive(event_type, root_cause, limit, **options))

    def retry(self, tracking_ids: Sequence[str], root_cause: str = "", **options: Any) -> list[str]:
        return self._loop.run(self._outbox.retry(tracking_ids, root_cause, **options))

    def purge(self, older_than: Duration, **options: Any) -> int:
        return self._loop.run(self._outbox.purge(older_than, **options))

    def worker(self, handler: Callable[[Any], Any] | Mapping[str, Callable[[Any], Any]], **options: Any) -> Worker:
        """Takes the settings of the async `outbox.worker`; plain functions run on threads of their own."""

        async def make() -> _worker.Worker:
            return self._outbox.worker(handler, **options)

        return Worker(self._loop, self._loop.run(make()))
