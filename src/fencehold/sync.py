"""The same nouns for programs without an event loop: `with` instead of `async with`, calls that block.

The lease is kept on background threads. What cannot be had without an event loop: a body cannot be cancelled when its
term ends, and a hung program is not noticed. So ask `term.is_valid` (or `term.check()`) often, and write through the
fence, which refuses whatever comes too late.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import functools
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, Never, Self, TypeVar, Unpack, overload

from fencehold import connect as _connect
from fencehold.model.durations import Duration
from fencehold.model.election import LockState
from fencehold.model.errors import ConfigurationError, LeaseLost, Unavailable
from fencehold.model.leases import Lease
from fencehold.model.retry import RetryStrategy
from fencehold.ports.connections import SyncConnection as Connection
from fencehold.ports.fence import SyncCursor as Cursor
from fencehold.ports.fence import SyncTransaction as Transaction
from fencehold.runtime import forks
from fencehold.runtime import leader as _leader
from fencehold.runtime import store as _store
from fencehold.runtime import term as _term
from fencehold.runtime.block_kinds import NotAwaited, PlainBlock
from fencehold.runtime.handler_types import SyncBatchHandler as BatchHandler
from fencehold.runtime.handler_types import SyncEventHandler as EventHandler
from fencehold.runtime.host import wind_up
from fencehold.runtime.job_checks import check_sync_job
from fencehold.runtime.leader_job import LeaderJob
from fencehold.runtime.options import (
    ConnectOptions,
    ItemsOptions,
    LeaderOptions,
    OutboxOptions,
    SeekOptions,
    SyncJobOptions,
)
from fencehold.sync_callbacks import OnThreads, PlainRegisters
from fencehold.sync_items import Item, ItemHandler, Items, Processor
from fencehold.sync_leader_job import JobThread, set_elsewhere
from fencehold.sync_leases import Leases
from fencehold.sync_outbox import Outbox, Worker
from fencehold.sync_term import TermFields

T = TypeVar("T")


class _Loop:
    """An event loop on a daemon thread; `run` blocks the caller until the work is done, Ctrl-C included."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._generation = forks.generation()
        self._lock = threading.Lock()
        self._is_stopping = False
        self._thread = threading.Thread(target=self._run_loop, name="fencehold-sync", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._result(self._begun(work))

    def run_unless(self, stuck: concurrent.futures.Future[T], work: Coroutine[Any, Any, T], grace_s: float) -> T:
        """`run`; but once `stuck` has an error, and the work is not done `grace_s` later, that error is raised.

        The loop may be blocked, and the work never come to its end.
        """
        future = self._begun(work)
        try:
            concurrent.futures.wait([future, stuck], return_when=concurrent.futures.FIRST_COMPLETED)
            done, _ = concurrent.futures.wait([future], timeout=grace_s)
        except KeyboardInterrupt:
            future.cancel()
            raise
        return self._result(future) if done else stuck.result()

    def run_within(self, limit_s: float, work: Coroutine[Any, Any, T]) -> T:
        """`run`, for at most so long; then Unavailable (`loop_blocked`): a loop that does not turn answers nothing."""
        future = self._begun(work)
        if not concurrent.futures.wait([future], timeout=limit_s).done:
            future.cancel()
            raise Unavailable(
                f"The store's event loop has not answered for {limit_s:.0f} s: a handler blocks it.",
                hint="Give plain functions as handlers, which run on threads, or do nothing in async ones that blocks.",
                code="loop_blocked",
            )
        return self._result(future)

    def _begun(self, work: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        if self._generation != forks.generation():
            work.close()
            raise _closed()
        with self._lock:  # never between the loop's last turn and its end: the work would never be done
            if self._is_stopping:
                work.close()
                raise _closed()
            return asyncio.run_coroutine_threadsafe(work, self._loop)

    def _result(self, future: concurrent.futures.Future[T]) -> T:
        try:
            return future.result()
        except KeyboardInterrupt:
            future.cancel()
            raise
        except concurrent.futures.CancelledError:
            if self._is_stopping:
                raise _closed() from None
            raise

    @property
    def is_stopped(self) -> bool:
        """Also in a forked child, which has no such thread."""
        return self._is_stopping or self._generation != forks.generation()

    def stop(self) -> None:
        """End the loop; whoever still waits in `run`, on another thread, gets an error (`store_closed`)."""
        with self._lock:
            self._is_stopping = True
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _run_loop(self) -> None:
        self._loop.run_forever()
        wind_up(self._loop)


def _closed() -> ConfigurationError:
    return ConfigurationError(
        "The store is closed, or belongs to the process that forked this one.",
        hint="Connect anew in a forked child.",
        code="store_closed",
    )


class Term(PlainBlock, TermFields):
    """A term of office; `with term:` swallows a LeaseLost of this same term, and nothing else.

    The body of a term that is over does not run: the block raises LeaseLost, or, in a loop over `leader.terms()`, waits
    for the next term.
    """

    def __init__(self, loop: _Loop, term: _term.Term) -> None:
        super().__init__(term)
        self._loop = loop

    def transaction(self) -> AbstractContextManager[Transaction]:
        """A fenced transaction in the calling thread: it commits only while this epoch holds."""
        return self._term.transaction_sync()

    def fence(self, connection_or_session: Connection) -> None:
        """The same guard in a transaction the caller owns, on a sync connection or session (else `bad_connection`)."""
        self._term.fence_sync(connection_or_session)

    def __enter__(self) -> Self:
        if self._loop.is_stopped:
            self._term.check()
        self._loop.run(self._term.until_valid())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        mine = (self._term.name, self._term.epoch)
        return isinstance(error, LeaseLost) and (error.name, error.epoch) == mine


class Leader(PlainBlock, PlainRegisters):
    """`store.leader(...)` without an event loop. Callbacks run, in order, on background threads.

    A thread cannot be stopped: one that takes longer than a callback may (10 s, and 1 s once its term is over) runs on
    beside the callbacks that follow. `on_error` says so and names it.
    """

    def __init__(self, loop: _Loop, leader: _leader.Leader) -> None:
        self._loop, self._leader = loop, leader
        self._callbacks = OnThreads(leader._callbacks)

    @property
    def name(self) -> str:
        return self._leader.name

    @property
    def holder_id(self) -> str:
        return self._leader.holder_id

    @property
    def state(self) -> LockState:
        return self._leader.state

    @property
    def is_leader(self) -> bool:
        return self._leader.is_leader

    @property
    def term(self) -> Term | None:
        term = self._leader.term
        return Term(self._loop, term) if term is not None else None

    def start(self) -> None:
        self._loop.run(self._leader.start())

    def shutdown(self, timeout_s: float | None = None) -> None:
        if not self._loop.is_stopped:
            self._loop.run(self._leader.shutdown(timeout_s))

    def step_down(self, timeout_s: float | None = None) -> None:
        self._loop.run(self._leader.step_down(timeout_s))

    def wait_for_leadership(self, timeout_s: float | None = None) -> bool:
        return self._loop.run(self._leader.wait_for_leadership(timeout_s))

    def terms(self) -> Iterator[Term]:
        """The current term and each later one, once. Ends when the leader is shut down, at once if it has been.

        Raises ConfigurationError (`leader_not_started`) when the loop begins if the leader was neither entered nor
        started.
        """
        for term in self._each(self._leader.terms()):
            yield Term(self._loop, term)

    def observe(self) -> Iterator[Lease | None]:
        """Who leads, now and after every change."""
        yield from self._each(self._leader.observe())

    def _each(self, source: Any) -> Iterator[Any]:
        try:
            while True:
                try:
                    yield self._loop.run(anext(source))
                except StopAsyncIteration:
                    return
        finally:
            if not self._loop.is_stopped:
                self._loop.run(source.aclose())

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.shutdown(None if exc[0] is None else self._leader.settings.lease_s)


class Store(PlainBlock, NotAwaited):
    """A connected database, without an event loop."""

    def __init__(self, store: _store.Store) -> None:
        self._store = store
        self._loop: _Loop | None = None

    @property
    def leases(self) -> Leases:
        return Leases(self._running(), self._store)

    def open(self, timeout_s: float | None = None) -> Self:
        """Connect; a database that is away is waited for, as by the async `store.open`."""
        if self._loop is None:
            self._loop = _Loop()
            try:
                self._loop.run(self._store.open(timeout_s))
            except BaseException:
                self._loop.stop()
                self._loop = None
                raise
        return self

    def close(self) -> None:
        if self._loop is not None:
            loop, self._loop = self._loop, None
            if not loop.is_stopped:
                loop.run(self._store.close())
                loop.stop()

    def init(self) -> list[str]:
        return self._running().run(self._store.init())

    def leader(self, name: str, **settings: Unpack[LeaderOptions]) -> Leader:
        """A candidate for the lease `name`; takes the settings of the async `store.leader`."""
        loop = self._running()
        return Leader(loop, loop.run(self._make(name, settings)))

    async def _make(self, name: str, settings: LeaderOptions) -> _leader.Leader:
        return self._store.leader(name, **settings)

    # The second is no use of it: an async job is refused (`bad_job`). A type checker names it, as a call not awaited.
    @overload
    def run_as_leader(self, name: str, job: Callable[[Term], None], **settings: Unpack[SyncJobOptions]) -> Any: ...
    @overload
    def run_as_leader(
        self, name: str, job: Callable[[Term], Awaitable[Any]], **settings: Unpack[SyncJobOptions]
    ) -> Coroutine[Any, Any, Never]: ...
    @overload
    def run_as_leader(self, name: str, job: Callable[[Term], T], **settings: Unpack[SyncJobOptions]) -> T | None: ...
    def run_as_leader(
        self,
        name: str,
        job: Callable[[Term], Any],
        *,
        lease: Duration = 30,
        stop: threading.Event | None = None,
        backoff: RetryStrategy | None = None,
        **settings: Unpack[SeekOptions],
    ) -> Any:
        """Run `job(term)` in the calling thread while this process leads; see docs/leader.md.

        As the async `store.run_as_leader`, but a running job cannot be cancelled: let it ask `term.is_valid` and return
        when that is False. It is then called again with the next term, or, once `stop` was set or the store closed on
        another thread, None is returned.
        """
        check_sync_job(job)
        loop = self._running()
        until = functools.partial(set_elsewhere, stop) if stop is not None else None
        steps = loop.run(self._make_job(name, backoff, until, {"lease": lease, **settings}))
        return JobThread(loop, steps).run(job, lambda term: Term(loop, term))

    async def _make_job(self, name: str, backoff: Any, until: Any, settings: LeaderOptions) -> LeaderJob:
        return self._store._leader_job(name, backoff, until, **settings)

    def outbox(self, name: str = "outbox", **settings: Unpack[OutboxOptions]) -> Outbox:
        """The outbox in the table `name`; takes the settings of the async `store.outbox`."""
        return Outbox(self._running(), self._store.outbox(name, **settings))

    def items(self, kind: str, **settings: Unpack[ItemsOptions]) -> Items:
        """The items of this kind; takes the settings of the async `store.items`."""
        return Items(self._running(), self._store.items(kind, **settings))

    def _running(self) -> _Loop:
        if self._loop is None:
            self._store._parts()  # raises: the store is not open
        assert self._loop is not None, "an open store has its loop"
        return self._loop

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(self, *exc: object) -> None:
        self.close()


def connect(url: str, **options: Unpack[ConnectOptions]) -> Store:
    """A store for the database at `url`, not yet open: use it with `with`. A wrong URL is refused here."""
    return Store(_connect(url, **options))


__all__ = [
    "BatchHandler",
    "Connection",
    "Cursor",
    "EventHandler",
    "Item",
    "ItemHandler",
    "Items",
    "Leader",
    "Leases",
    "Outbox",
    "Processor",
    "Store",
    "Term",
    "Transaction",
    "Worker",
    "connect",
]
