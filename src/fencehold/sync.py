"""The same nouns for programs without an event loop: `with` instead of `async with`, calls that block.

The lease is kept on background threads. What cannot be had without an event loop: a body cannot be cancelled when its
term ends, and a hung program is not noticed. So ask `term.is_valid` (or `term.check()`) often, and write through the
fence, which refuses whatever comes too late.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, Self, TypeVar, overload

from fencehold import connect as _connect
from fencehold.model.durations import Duration
from fencehold.model.election import LockState
from fencehold.model.errors import ConfigurationError, LeaseLost
from fencehold.model.leases import Lease
from fencehold.ports.fence import SyncTransaction
from fencehold.runtime import forks
from fencehold.runtime import leader as _leader
from fencehold.runtime import store as _store
from fencehold.runtime import term as _term
from fencehold.runtime.callbacks import Callbacks, Registers, check
from fencehold.sync_items import Items
from fencehold.sync_outbox import Outbox

T = TypeVar("T")


class _Loop:
    """An event loop on a daemon thread; `run` blocks the caller until the work is done, Ctrl-C included."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._generation = forks.generation()
        self._thread = threading.Thread(target=self._loop.run_forever, name="fencehold-sync", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        if self.is_stopped:
            work.close()
            raise ConfigurationError(
                "The store is closed, or belongs to the process that forked this one.",
                hint="Connect anew in a forked child.",
                code="store_closed",
            )
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except KeyboardInterrupt:
            future.cancel()
            raise

    @property
    def is_stopped(self) -> bool:
        """Also in a forked child, which has no such thread."""
        return self._loop.is_closed() or self._generation != forks.generation()

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class Leases:
    """`store.leases` without an event loop."""

    def __init__(self, loop: _Loop, store: _store.Store) -> None:
        self._loop, self._book = loop, store.leases

    def acquire(self, name: str, holder_id: str | None = None, lease: Duration = 30) -> Lease | None:
        return self._loop.run(self._book.acquire(name, holder_id, lease))

    @overload
    def renew(self, leases: Lease, lease: Duration = 30) -> Lease | None: ...
    @overload
    def renew(self, leases: Sequence[Lease], lease: Duration = 30) -> list[Lease]: ...
    def renew(self, leases: Any, lease: Duration = 30) -> Any:
        return self._loop.run(self._book.renew(leases, lease))

    @overload
    def release(self, leases: Lease) -> Lease | None: ...
    @overload
    def release(self, leases: Sequence[Lease]) -> list[Lease]: ...
    def release(self, leases: Any) -> Any:
        return self._loop.run(self._book.release(leases))

    def read(self, name: str) -> Lease | None:
        return self._loop.run(self._book.read(name))

    def ask_step_down(self, name: str, epoch: int) -> Lease | None:
        return self._loop.run(self._book.ask_step_down(name, epoch))

    def list(self, prefix: str = "") -> list[Lease]:
        return self._loop.run(self._book.list(prefix))


class Term:
    """A term of office; `with term:` swallows a LeaseLost of this same term, and nothing else."""

    def __init__(self, term: _term.Term) -> None:
        self._term = term

    def __getattr__(self, name: str) -> Any:
        """name, holder_id, epoch, expires_at, is_valid, remaining_s, check, guard, ended_because: as they are."""
        return getattr(self._term, name)

    def transaction(self) -> AbstractContextManager[SyncTransaction]:
        """A fenced transaction in the calling thread: it commits only while this epoch holds."""
        return self._term.transaction_sync()

    def fence(self, connection_or_session: object) -> None:
        """The same guard in a transaction the caller owns, on a sync connection or session."""
        self._term.fence(connection_or_session)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        mine = (self._term.name, self._term.epoch)
        return isinstance(error, LeaseLost) and (error.name, error.epoch) == mine


class _OnThreads(Callbacks):
    """Registers callbacks to run on a thread of their own: they may block, and may call the leader."""

    def __init__(self, inner: Callbacks) -> None:
        self._inner = inner

    def add(self, event: str, fn: Callable[..., object]) -> None:
        async def on_thread(*args: Any) -> None:
            await asyncio.to_thread(fn, *args)

        check(event, fn)
        self._inner.add(event, on_thread)


class Leader(Registers):
    """`store.leader(...)` without an event loop. Callbacks run, in order, on background threads."""

    def __init__(self, loop: _Loop, leader: _leader.Leader) -> None:
        self._loop, self._leader = loop, leader
        self._callbacks = _OnThreads(leader._callbacks)

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
        return Term(term) if term is not None else None

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
        """Each term of office once, as it begins; ends when the leader is shut down."""
        for term in self._each(self._leader.terms()):
            yield Term(term)

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


class Store:
    """A connected database, without an event loop."""

    def __init__(self, store: _store.Store) -> None:
        self._store = store
        self._loop: _Loop | None = None

    @property
    def leases(self) -> Leases:
        return Leases(self._running(), self._store)

    def open(self) -> Self:
        if self._loop is None:
            self._loop = _Loop()
            try:
                self._loop.run(self._store.open())
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

    def leader(self, name: str, **settings: Any) -> Leader:
        """A candidate for the lease `name`; takes the settings of the async `store.leader`."""
        loop = self._running()
        return Leader(loop, loop.run(self._make(name, settings)))

    async def _make(self, name: str, settings: dict[str, Any]) -> _leader.Leader:
        return self._store.leader(name, **settings)

    def outbox(self, name: str = "outbox", **settings: Any) -> Outbox:
        """The outbox in the table `name`; takes the settings of the async `store.outbox`."""
        return Outbox(self._running(), self._store.outbox(name, **settings))

    def items(self, kind: str, **settings: Any) -> Items:
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


def connect(url: str, **options: Any) -> Store:
    """A store for the database at `url`, not yet open: use it with `with`. A wrong URL is refused here."""
    return Store(_connect(url, **options))
