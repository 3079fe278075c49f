"""`store.leader(...)` and its terms, for programs without an event loop."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, Self

from fencehold.model.election.election import LockState
from fencehold.model.election.leases import Lease
from fencehold.model.errors import LeaseLost
from fencehold.ports.connections import SyncConnection as Connection
from fencehold.ports.fence import SyncTransaction as Transaction
from fencehold.runtime.core.block_kinds import PlainBlock
from fencehold.runtime.election import leader as _leader
from fencehold.runtime.election import term as _term
from fencehold.sync.background_loop import BackgroundLoop
from fencehold.sync.callbacks import OnThreads, PlainRegisters
from fencehold.sync.term_fields import TermFields


class Term(PlainBlock, TermFields):
    """A term of office; `with term:` swallows a LeaseLost of this same term, and nothing else.

    The body of a term that is over does not run: the block raises LeaseLost, or, in a loop over `leader.terms()`, waits
    for the next term.
    """

    def __init__(self, loop: BackgroundLoop, term: _term.Term) -> None:
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

    def __init__(self, loop: BackgroundLoop, leader: _leader.Leader) -> None:
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
