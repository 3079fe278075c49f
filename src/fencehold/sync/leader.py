"""`store.leader(...)` and its terms, for programs without an event loop."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from fencehold.model.election.election import LockState
from fencehold.model.election.rules import Lease
from fencehold.model.errors import LeaseLost
from fencehold.ports.connections import SyncConnection as Connection
from fencehold.ports.fence import SyncTransaction as Transaction
from fencehold.runtime.core.block_kinds import PlainBlock
from fencehold.runtime.election import leader as _leader
from fencehold.runtime.election import term as _term
from fencehold.runtime.election.keeper import HeldLease
from fencehold.sync.background_loop import BackgroundLoop
from fencehold.sync.callbacks import OnThreads, PlainRegisters


class Term(PlainBlock, _term.TermFields):
    """One term of a leader, from the store's grant of the lease to its end.

    The term is valid until a local deadline that falls before the store's own expiry; `is_valid` never does I/O. `with
    term:` suppresses a LeaseLost of this same term, and nothing else. It cannot cancel its body when the term ends. If
    the term is over already, the body does not run: the block raises LeaseLost, or, in a loop over `leader.terms()`,
    waits for the next term.
    """

    def __init__(self, loop: BackgroundLoop, term: _term.Term) -> None:
        self._loop, self._term = loop, term

    if not TYPE_CHECKING:  # hidden from type checkers, which would accept every misspelt name

        def __getattr__(self, name: str) -> Any:
            """Return an attribute of the async term, for every name that this class does not define."""
            return getattr(self._term, name)

    @property
    def _lease(self) -> HeldLease:
        return self._term._held

    def guard(self) -> _term.Guard:
        """Return a condition that makes one statement a fenced write; see Guard.

        Raises LeaseLost if the term is over.
        """
        return self._term.guard()

    def transaction(self) -> AbstractContextManager[Transaction]:
        """Return a fenced transaction in the calling thread: it commits only while this epoch holds.

        While the transaction is open no other holder can take over the lease; renewals go on. Raises LeaseLost if the
        term is over.
        """
        return self._term._transaction_sync()

    def fence(self, connection_or_session: Connection) -> None:
        """Fence a transaction that the caller owns: from here to its commit nobody can take over the lease.

        Takes the same sync connections and sessions as `outbox.add(tx=)`. If the term is over, it raises LeaseLost and
        makes the transaction unable to commit. Raises ConfigurationError (`bad_connection`) for an async connection,
        and fences nothing.
        """
        self._term._fence_sync(connection_or_session)

    def __enter__(self) -> Self:
        if self._loop.is_stopped:
            self._term.check()
        self._loop.run(self._term._until_valid())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        mine = (self._term.name, self._term.epoch)
        return isinstance(error, LeaseLost) and (error.name, error.epoch) == mine


class Leader(PlainBlock, PlainRegisters):
    """Seeks one lease and holds it, as one candidate of many; made by `store.leader(...)`.

    At most one holder of this name has a valid term at any time; each term has a higher epoch than all before.
    Callbacks run in order on background threads. A thread cannot be stopped: a callback that takes too long (10 s, or 1
    s once its term is over) continues while later callbacks run. `on_error` gets an error that names that callback.
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
        """True only while the current term is valid. It compares clocks and does no I/O."""
        return self._leader.is_leader

    @property
    def term(self) -> Term | None:
        """The current term; None while this process does not lead."""
        term = self._leader.term
        return Term(self._loop, term) if term is not None else None

    def start(self) -> None:
        """Start to follow the lease and to try to acquire it. Idempotent.

        Returns when the first attempt has ended, or after 5 s. If the store does not answer, attempts go on in the
        background. Raises ConfigurationError when waiting cannot help: a missing table or right, a refused login. Once
        the store has answered, such an error is logged and retried like an outage.
        """
        self._loop.run(self._leader.start())

    def shutdown(self, timeout_s: float | None = None) -> None:
        """Give the lease back and stop. Idempotent. After the timeout it stops without waiting for the store.

        If the store did not confirm the release in time, `on_lost` and `on_error` are called, not `on_released`.
        Returns after the callbacks have run, or when their time is over (what is left of the timeout, at least 2 s; 10
        s without a timeout): the remaining callbacks are cancelled at that moment.
        """
        if not self._loop.is_stopped:
            self._loop.run(self._leader.shutdown(timeout_s))

    def step_down(self, timeout_s: float | None = None) -> None:
        """Give the lease back and let others acquire it; later try to acquire it again. Does nothing when not leading.

        Returns after the `on_released` callbacks have run, or when the timeout is over (without one they have 10 s).
        Inside a callback it does not wait for callbacks.
        """
        self._loop.run(self._leader.step_down(timeout_s))

    def wait_for_leadership(self, timeout_s: float | None = None) -> bool:
        """Wait until this process leads and `on_acquired` has run. Returns True then, False on timeout or once stopped.

        True is returned only while this process leads. If the leader has stopped, this returns after `on_lost`,
        `on_error` and `on_stopped` have run. It waits for callbacks until the timeout, at most 10 s; inside a callback
        it does not wait for callbacks. Before `start()` it also waits for the start. Raises ConfigurationError if such
        an error stopped the leader before the store had ever answered.
        """
        return self._loop.run(self._leader.wait_for_leadership(timeout_s))

    def terms(self) -> Iterator[Term]:
        """Return an iterator over the current term and each later one; each comes once.

        If the loop's body ends before its term does, the iterator waits for the term's end. The loop ends when the
        leader is shut down, or at once if the leader is shut down already. Raises ConfigurationError
        (`leader_not_started`) when the loop begins if the leader was neither entered nor started.
        """
        for term in self._each(self._leader.terms()):
            yield Term(self._loop, term)

    def observe(self) -> Iterator[Lease | None]:
        """Yield who leads, now and after every change: a live Lease, or None for nobody. Ends when the store closes."""
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
