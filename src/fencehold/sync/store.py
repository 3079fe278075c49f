"""`fencehold.sync.connect` and its store, for programs without an event loop."""

from __future__ import annotations

import functools
import threading
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Never, Self, TypeVar, Unpack, overload

from fencehold import connect as _connect
from fencehold.model.durations import Duration
from fencehold.model.election.retry import RetryStrategy
from fencehold.model.errors import ConfigurationError
from fencehold.runtime import store as _store
from fencehold.runtime.core.block_kinds import NotAwaited, PlainBlock
from fencehold.runtime.election.leader_job import check_sync_job
from fencehold.runtime.options import (
    ConnectOptions,
    ItemsOptions,
    LeaderOptions,
    OutboxOptions,
    SeekOptions,
    SyncJobOptions,
)
from fencehold.sync.background_loop import BackgroundLoop
from fencehold.sync.items import Items
from fencehold.sync.leader import Leader, Term
from fencehold.sync.leader_job import JobThread, set_elsewhere
from fencehold.sync.lease_verbs import Leases
from fencehold.sync.outbox import Outbox

T = TypeVar("T")


class Store(PlainBlock, NotAwaited):
    """A connected database, from which leaders, outboxes and items are made. Use it with `with`, or `open` and `close`.

    Closing the store gives back every lease that it holds.
    """

    def __init__(self, store: _store.Store) -> None:
        self._store = store
        self._loop: BackgroundLoop | None = None

    @property
    def leases(self) -> Leases:
        return Leases(self._running(), self._store)

    def open(self, timeout_s: float | None = None) -> Self:
        """Connect, and return this store.

        While the database is away it waits, and logs that within 5 s, then once a minute. Raises ConfigurationError at
        once when waiting cannot help: a refused login, a missing database. Raises Unavailable or Uncertain only when
        `timeout_s`, or else the `open_timeout` given to `connect`, is over (0: after the first try).
        """
        if self._loop is None:
            self._loop = BackgroundLoop()
            try:
                self._loop.run(self._store.open(timeout_s))
            except BaseException:
                self._loop.stop()
                self._loop = None
                raise
        return self

    def close(self) -> None:
        """Stop all that runs, give back every lease and item, disconnect. Idempotent."""
        if self._loop is not None:
            loop, self._loop = self._loop, None
            if not loop.is_stopped:
                loop.run(self._store.close())
                loop.stop()

    def init(self) -> list[str]:
        """Create or upgrade the tables of leases, and of every outbox and the items declared on this store so far.

        This is safe to repeat, and to call in several processes at once. Tables of what is declared later are made at
        its first use on this store. Returns the steps applied by this call.
        """
        return self._running().run(self._store.init())

    def missing(self) -> list[str]:
        """Return the names of what `init` would make now, such as `fencehold_leases.lease_id`; empty if all is there.

        This changes nothing, and needs no right to make tables.
        """
        return self._running().run(self._store.missing())

    def leader(self, name: str, **settings: Unpack[LeaderOptions]) -> Leader:
        """Return a candidate for the lease `name`, not yet started.

        Raises ConfigurationError for a wrong setting, before anything is sent. Also raises it (`duplicate_holder`) if
        this store has a candidate for this lease and this `holder_id` already.
        """
        loop = self._running()
        return Leader(loop, loop.call(self._store.leader, name, **settings))

    # The second overload is a wrong use: an async job is refused (`bad_job`). A type checker reports it, as a call
    # that is not awaited.
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
        """Run `job(term)` in the calling thread while this process leads, at most in one process at a time.

        Returns what the job returned, after the lease was given back. A running job cannot be cancelled: let it check
        `term.is_valid` and return when that is False; it is then called again with the next term. When the job raises,
        the traceback is logged, the lease is given back so that another may try, and the job is tried again after a
        pause: 1 to 60 s with jitter, or what `backoff` returns; if that returns None, the job's error is raised here.
        Returns None once `stop` is set or the store is closed on another thread. Other settings are those of
        `store.leader`. Raises ConfigurationError for an async job (`bad_job`), and at first contact when waiting cannot
        help. See docs/leader.md.
        """
        check_sync_job(job)
        loop = self._running()
        until = functools.partial(set_elsewhere, stop) if stop is not None else None
        steps = loop.call(self._store._leader_job, name, backoff, until, lease=lease, **settings)
        return JobThread(loop, steps).run(job, lambda term: Term(loop, term))

    def outbox(self, name: str = "outbox", **settings: Unpack[OutboxOptions]) -> Outbox:
        """Return the outbox in the table `name`.

        Raises ConfigurationError for a wrong setting, before anything is sent. `event_types`: the only types it accepts
        (without it, all). `ordered`: it hands out the events of one aggregate one at a time, oldest first.
        """
        return Outbox(self._running(), self._store.outbox(name, **settings))

    def items(self, kind: str, **settings: Unpack[ItemsOptions]) -> Items:
        """Return the items of this kind, each with at most one holder.

        Raises ConfigurationError for a wrong setting, before anything is sent. Without `holder_id` they get one that
        nobody else uses, in this process or another.
        """
        return Items(self._running(), self._store.items(kind, **settings))

    def _running(self) -> BackgroundLoop:
        if self._loop is None:
            raise ConfigurationError(
                "The store is not open.",
                hint="Use `with fencehold.sync.connect(...) as store:` or `store.open()`.",
                code="store_closed",
            )
        return self._loop

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(self, *exc: object) -> None:
        self.close()


def connect(url: str, **options: Unpack[ConnectOptions]) -> Store:
    """Return a store for the database at `url`, not yet open: use it with `with`.

    Takes the options of `fencehold.connect`. Raises ConfigurationError for a wrong URL.
    """
    return Store(_connect(url, **options))
