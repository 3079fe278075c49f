"""`store.leader(...)`: one candidate for one lease, in the caller's event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator
from functools import partial
from typing import cast
from weakref import WeakValueDictionary

from fencehold.model.election.election import Emit, LockState
from fencehold.model.election.retry import RetryStrategy
from fencehold.model.election.rules import Lease
from fencehold.model.election.settings import LeaderSettings
from fencehold.model.errors import ConfigurationError, FenceholdError, Uncertain, redact
from fencehold.ports.fact_table import LeaseFacts
from fencehold.runtime.context import StoreContext
from fencehold.runtime.core.block_kinds import AsyncBlock
from fencehold.runtime.core.keeper_thread import post_to
from fencehold.runtime.election.election import LEADING, Candidate, Election, ElectionSettings, Limit
from fencehold.runtime.election.keeper import HeldLease
from fencehold.runtime.election.lease_mechanism import LeaseMechanism, LeaseRetry
from fencehold.runtime.election.term import Term
from fencehold.runtime.election.terms import Terms
from fencehold.runtime.election.watch import Follow, News

FIRST_TRY_LIMIT_S = 5.0
CUT_OFF = "The store did not confirm the release of the lease within the {} s that the shutdown had."
LAPSES = "Others may have to wait until the lease lapses by itself."


class Leader(AsyncBlock, Candidate[HeldLease]):
    """Seeks one lease and holds it, as one candidate of many; made by `store.leader(...)`.

    At most one holder of this name has a valid term at any time; each term has a higher epoch than all before.
    """

    def __init__(
        self,
        name: str,
        holder_id: str,
        settings: LeaderSettings,
        context: StoreContext,
        *,
        candidates: Candidates,
        retry_strategy: RetryStrategy | None = None,
    ) -> None:
        super().__init__(context.facts)
        self.name = name
        self.holder_id = holder_id
        self.settings = settings
        self._retry_strategy = retry_strategy
        self._context = context
        self._clock = context.clock
        self._facts = LeaseFacts(context.facts.sink, name, holder_id)
        self._candidates = candidates
        self._mechanism: LeaseMechanism | None = None
        self._term: Term | None = None
        self._starting = asyncio.Lock()
        self._is_started = False
        self._stops = 0  # how often it was stopped

    # --- lifecycle ---

    async def start(self) -> None:
        """Start to follow the lease and to try to acquire it. Idempotent.

        Returns when the first attempt has ended, or after 5 s. If the store does not answer, attempts go on in the
        background. Raises ConfigurationError when waiting cannot help: a missing table or right, a refused login. Once
        the store has answered, such an error is logged and retried like an outage.
        """
        async with self._starting:  # of two concurrent starts the second waits for the first and does nothing
            stops = self._stops
            is_free = self._election is None or await self._election.make_way()
            if is_free and stops == self._stops:  # else shut down meanwhile
                self._candidates.enrol(self)
                await self._start()
                self._is_started = True
        self._raise_mistake()

    async def _start(self) -> None:
        context = self._context
        # Not waited for: the first log line about an outage comes from the first attempt.
        context.keeper_loop.begin(context.keeper.listen())
        mechanism = LeaseMechanism(
            self.name, self.holder_id, self.settings, context, patient=self._retry_strategy is None
        )
        retry = self._retry_strategy or LeaseRetry(self.settings)
        election: Election[HeldLease] = Election(
            mechanism, ElectionSettings(), retry, self._callbacks, self._clock, self._on_state
        )
        self._election = election
        self._task = asyncio.create_task(election.run(), name=f"fencehold-leader-{self.name}")
        self._begun.set()
        self._task.add_done_callback(partial(self._ended, election))
        self._mechanism = mechanism
        try:
            await self._clock.wait(mechanism.first_tried, FIRST_TRY_LIMIT_S)
        except asyncio.CancelledError:
            self._task.cancel()  # the caller would not know that it runs
            raise
        if mechanism.mistake is not None:
            await asyncio.wait([self._task])

    async def shutdown(self, timeout_s: float | None = None) -> None:
        """Give the lease back and stop. Idempotent. After the timeout it stops without waiting for the store.

        If the store did not confirm the release in time, `on_lost` and `on_error` are called, not `on_released`.
        Returns after the callbacks have run, or when their time is over (what is left of the timeout, at least 2 s; 10
        s without a timeout): the remaining callbacks are cancelled at that moment.
        """
        self._stops += 1
        self._begun.set()
        task, election = self._task, self._election
        if task is not None and election is not None:
            await self._stopped(election, task, timeout_s)
        if self._task is task:  # else a callback has started it again
            self._candidates.withdraw(self)

    async def _cut_off(self, election: Election[HeldLease], task: asyncio.Task[None], timeout_s: float | None) -> None:
        if not election.is_over:
            self._context.facts.shutdown_cut_off(limit_s=timeout_s)
            self._callbacks.emit(Emit.ERROR, Uncertain(CUT_OFF.format(timeout_s), hint=LAPSES))
        task.cancel()
        await asyncio.wait([task])

    def _stop_at_once(self) -> None:
        """Stop without waiting.

        The lease is given back in the background, or left to lapse if a body still runs under it.
        """
        self._stops += 1
        self._begun.set()
        if self._task is not None:
            self._task.cancel()

    async def step_down(self, timeout_s: float | None = None) -> None:
        """Give the lease back and let others acquire it; later try to acquire it again. Does nothing when not leading.

        Returns after the `on_released` callbacks have run, or when the timeout is over (without one they have 10 s).
        Inside a callback it does not wait for callbacks.
        """
        election = self._election
        if election is None or election.state not in LEADING:
            return
        limit = Limit(timeout_s)
        if election.state is LockState.LEADER:
            election.step_down.set()
        if await self._stepped_down(election, timeout_s):
            await self._callbacks.delivered(limit.of_callbacks_s, upto=election.last_delivered)
        elif self._term is not None:
            self._term.lost("step_down did not finish in time")

    async def wait_for_leadership(self, timeout_s: float | None = None) -> bool:
        """Wait until this process leads and `on_acquired` has run. Returns True then, False on timeout or once stopped.

        True is returned only while this process leads. If the leader has stopped, this returns after `on_lost`,
        `on_error` and `on_stopped` have run. It waits for callbacks until the timeout, at most 10 s; inside a callback
        it does not wait for callbacks. Before `start()` it also waits for the start. Raises ConfigurationError if such
        an error stopped the leader before the store had ever answered.
        """
        await self._leads_or_over(timeout_s)
        if not self.is_leader and self._election is not None and self._election.is_over:
            self._raise_mistake()
        return self.is_leader

    async def __aexit__(self, *exc: object) -> None:
        await self.shutdown(None if exc[0] is None else self.settings.lease_s)

    # --- state ---

    @property
    def is_leader(self) -> bool:
        """True only while the current term is valid. It compares clocks and does no I/O."""
        return self.term is not None

    @property
    def term(self) -> Term | None:
        """The current term; None while this process does not lead."""
        term = self._term
        return term if term is not None and term.is_valid else None

    @property
    def _leadership(self) -> Term | None:
        return self.term

    def terms(self) -> Terms:
        """Return an iterator over the current term and each later one; each comes once.

        If the loop's body ends before its term does, the iterator waits for the term's end. The loop ends when the
        leader is shut down, or at once if the leader is shut down already. Raises ConfigurationError
        (`leader_not_started`) when the loop begins if the leader was neither entered nor started.
        """
        return Terms(self)

    async def observe(self) -> AsyncGenerator[Lease | None, None]:
        """Yield who leads, now and after every change: a live Lease, or None for nobody. Ends when the store closes."""
        keeper, keeper_loop = self._context.keeper, self._context.keeper_loop
        seen: asyncio.Queue[tuple[News, Lease | None]] = asyncio.Queue()
        loop = asyncio.get_running_loop()

        def hear(news: News, lease: Lease | None) -> None:
            post_to(loop, seen.put_nowait, (news, lease))

        follow = Follow(self.name, self.settings.acquire_every_s, hear, wants_changes=True)
        await keeper_loop.begin(keeper.listen())
        keeper_loop.post(keeper.watch.follow, follow)
        try:
            last: tuple[str, int] | str | None = "nothing seen yet"
            while (said := await seen.get())[0] is not News.CLOSED:
                lease = said[1] if said[1] is not None and said[1].is_live else None
                who = (lease.holder_id, lease.epoch) if lease else None
                if said[0] is News.SEEN and who != last:
                    last = who
                    yield lease
        finally:
            keeper_loop.post(keeper.watch.unfollow, follow)

    # --- parts ---

    async def _was_started(self) -> bool:
        """Return whether the leader was ever started. If a start is in progress, wait for its end first."""
        async with self._starting:
            return self._is_started

    def _raise_mistake(self) -> None:
        """Raise the ConfigurationError that stopped the leader before the store had ever answered, if there was one."""
        if self._mechanism is not None and self._mechanism.mistake is not None:
            raise self._mechanism.mistake

    async def _next_term(self, after: Term | None) -> Term | None:
        """Wait for a valid term other than `after`, and return it; None once the leader has stopped.

        Raises ConfigurationError if such an error has stopped the leader.
        """
        term = await self._leadership_or_end(after)
        if term is None:
            self._raise_mistake()
        return cast("Term | None", term)

    def _on_state(self, old: LockState, new: LockState, why: str) -> None:
        self._facts.state_change(old=old.value, new=new.value, why=why)
        assert self._election is not None, "states change only while an election runs"
        held = self._election.grant
        if new is LockState.LEADER and held is not None:
            self._term = Term(held, self._context.keeper.backend.fences)
            held.facts.leader_acquired()

    def _ended(self, election: Election[HeldLease], task: asyncio.Task[None]) -> None:
        """End the term, log an error, and wake the waiters, because the election's task has ended, in whatever way."""
        is_replaced = self._election is not election
        if self._term is not None and self._term.is_valid and not is_replaced:
            self._term.lost("the leader was cancelled")
        if not task.cancelled() and (error := task.exception()) is not None:
            self._context.facts.internal_error(error=f"{type(error).__name__}: {error}")
            self._callbacks.emit(Emit.ERROR, FenceholdError(redact(f"{type(error).__name__}: {error}")))
        election.ended()
        if is_replaced:
            return
        self._candidates.withdraw(self)
        if self._mechanism is not None:
            self._mechanism.first_tried.set()  # also set if it was stopped before it began


class Candidates:
    """The leaders of one store that were started: at most one for each lease and holder.

    The references are weak: a candidate that nobody uses any more does not block another.
    """

    def __init__(self) -> None:
        self._by_holder: WeakValueDictionary[tuple[str, str], Leader] = WeakValueDictionary()

    def __iter__(self) -> Iterator[Leader]:
        return iter(list(self._by_holder.values()))

    def enrol(self, candidate: Leader) -> None:
        """Add the candidate.

        Raises ConfigurationError (`duplicate_holder`) if there is another one for this lease and holder. Each of two
        such candidates would take the other's renewals for its own.
        """
        who = (candidate.name, candidate.holder_id)
        if self._by_holder.get(who, candidate) is not candidate:
            raise ConfigurationError(
                f"{candidate.holder_id!r} is already a candidate for lease {candidate.name!r} in this store.",
                hint="Use one leader per lease and process, or give each its own holder_id.",
                code="duplicate_holder",
            )
        self._by_holder[who] = candidate

    def withdraw(self, candidate: Leader) -> None:
        self._by_holder.pop((candidate.name, candidate.holder_id), None)
