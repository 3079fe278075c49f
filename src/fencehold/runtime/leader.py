"""`store.leader(...)`: one candidate for one lease, in the caller's event loop."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from typing import Self

from fencehold.model.election import LockState
from fencehold.model.errors import ConfigurationError, Unavailable, Uncertain
from fencehold.model.leases import Lease
from fencehold.model.retry import RetryStrategy
from fencehold.model.settings import LeaderSettings
from fencehold.ports.clock import Clock
from fencehold.ports.facts import FactSink
from fencehold.runtime.callbacks import Callbacks, Registers
from fencehold.runtime.election import Election, ElectionSettings
from fencehold.runtime.engine import Engine
from fencehold.runtime.held import Held
from fencehold.runtime.host import Host
from fencehold.runtime.lease_mechanism import LeaseMechanism, LeaseRetry
from fencehold.runtime.term import Term
from fencehold.runtime.watch import Follow, News

CHECK_LIMIT_S = 5.0
DRAIN_LIMIT_S = 2.0


class Leader(Registers):
    """At most one holder of this name has a valid term at any time; each term has a higher epoch than all before."""

    def __init__(
        self,
        name: str,
        holder_id: str,
        settings: LeaderSettings,
        *,
        retry_strategy: RetryStrategy | None,
        engine: Callable[[], tuple[Engine, Host]],
        clock: Clock,
        facts: FactSink,
        enrol: Callable[[Leader], None],
        done: Callable[[], object],
        rng: random.Random | None = None,
    ) -> None:
        self.name = name
        self.holder_id = holder_id
        self.settings = settings
        self._retry_strategy = retry_strategy
        self._parts = engine
        self._clock = clock
        self._facts = facts
        self._enrol = enrol
        self._done = done
        self._rng = rng
        self._callbacks = Callbacks(facts)
        self._election: Election[Held] | None = None
        self._task: asyncio.Task[None] | None = None
        self._term: Term | None = None
        self._starting = asyncio.Lock()
        self._unwanted = False

    # --- lifecycle ---

    async def start(self) -> None:
        """Begin to follow and to seek the lease. Idempotent. Raises what no retry can mend, such as a missing table."""
        async with self._starting:  # of two starts at once the second waits for the first, and has nothing to do
            if self._task is None or self._task.done():
                self._unwanted = False
                self._enrol(self)
                await self._start()
        await asyncio.sleep(0)

    async def _start(self) -> None:
        engine, host = self._parts()
        try:
            with suppress(Unavailable, Uncertain):  # a store that is down now may be up later: the election retries
                await host.begin(engine.backend.leases.read([self.name], CHECK_LIMIT_S))
        except ConfigurationError:
            self._done()
            raise
        await host.begin(engine.listen())
        if self._unwanted:
            return  # shut down meanwhile
        mechanism = LeaseMechanism(
            self.name, self.holder_id, self.settings, engine=engine, host=host, clock=self._clock, facts=self._facts,
            patient=self._retry_strategy is None, bodies_left=self._bodies_left,
        )  # fmt: skip
        retry = self._retry_strategy or LeaseRetry(self.settings, self._rng)
        election: Election[Held] = Election(
            mechanism, ElectionSettings(), retry, self._callbacks, self._clock, self._on_state
        )
        mechanism.stopping(election.stop.is_set)
        self._election = election
        self._callbacks.dispatcher.start()
        self._task = asyncio.create_task(election.run(), name=f"fencehold-leader-{self.name}")
        self._task.add_done_callback(self._ended)

    async def shutdown(self, timeout_s: float | None = None) -> None:
        """Give the lease back and stop. Idempotent. After the timeout it stops without waiting for the store."""
        self._unwanted = True
        if self._task is None or self._election is None:
            self._done()
            return
        self._election.stop.set()
        if not self._task.done():
            await asyncio.wait([self._task], timeout=timeout_s)
        if not self._task.done():
            self._task.cancel()
            await asyncio.wait([self._task])
        await self._callbacks.dispatcher.drain(DRAIN_LIMIT_S)
        self._callbacks.dispatcher.stop()
        self._done()

    async def step_down(self, timeout_s: float | None = None) -> None:
        """Give the lease back and let others have it; afterwards seek it again. Nothing to do when not leading."""
        election = self._election
        if election is None or election.state is not LockState.LEADER:
            return
        election.step_down.set()
        try:
            async with asyncio.timeout(timeout_s):
                while election.state in (LockState.LEADER, LockState.RELEASING):
                    await election.changed.wait()
        except TimeoutError:
            if self._term is not None:
                self._term.lost("step_down did not finish in time")

    async def wait_for_leadership(self, timeout_s: float | None = None) -> bool:
        """True as soon as we lead; False on timeout or once stopped."""
        try:
            async with asyncio.timeout(timeout_s):
                return await self._next_term(after=None) is not None
        except TimeoutError:
            return False

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.shutdown(None if exc[0] is None else self.settings.lease_s)

    # --- state ---

    @property
    def state(self) -> LockState:
        return self._election.state if self._election is not None else LockState.STOPPED

    @property
    def is_leader(self) -> bool:
        """A clock comparison: True only while the current term is valid."""
        return self.term is not None

    @property
    def term(self) -> Term | None:
        """The current term, while it is valid."""
        term = self._term
        return term if term is not None and term.is_valid else None

    async def terms(self) -> AsyncGenerator[Term, None]:
        """The current term and each later one, once; a body that is done early waits. Ends with the leader."""
        term: Term | None = None
        while (term := await self._next_term(after=term)) is not None:
            yield term
            await term.ended()

    async def observe(self) -> AsyncGenerator[Lease | None, None]:
        """Who leads, now and after every change: a live Lease, or None while nobody does. Ends with the store."""
        engine, host = self._parts()
        seen: asyncio.Queue[tuple[News, Lease | None]] = asyncio.Queue()
        loop = asyncio.get_running_loop()

        def hear(news: News, lease: Lease | None) -> None:
            with suppress(RuntimeError):  # the observer's loop is closed
                loop.call_soon_threadsafe(seen.put_nowait, (news, lease))

        follow = Follow(self.name, self.settings.acquire_every_s, hear, wants_changes=True)
        await host.begin(engine.listen())
        host.post(engine.watch.follow, follow)
        try:
            last: tuple[str, int] | str | None = "nothing seen yet"
            while (said := await seen.get())[0] is not News.CLOSED:
                lease = said[1] if said[1] is not None and said[1].is_live else None
                who = (lease.holder_id, lease.epoch) if lease else None
                if said[0] is News.SEEN and who != last:
                    last = who
                    yield lease
        finally:
            with suppress(RuntimeError):  # the store is closed
                host.post(engine.watch.unfollow, follow)

    # --- parts ---

    async def _next_term(self, after: Term | None) -> Term | None:
        while (election := self._election) is not None:
            changed = election.changed
            if (term := self.term) is not None and term is not after:
                return term
            if election.state is LockState.STOPPED and self._task is not None and self._task.done():
                return None
            await changed.wait()
        return None

    async def _bodies_left(self, limit_s: float) -> bool:
        return self._term is None or await self._term.bodies_left(limit_s)

    def _on_state(self, old: LockState, new: LockState, why: str) -> None:
        self._facts.fact(
            "state_change", lease_name=self.name, holder_id=self.holder_id, old=old.value, new=new.value, why=why
        )
        assert self._election is not None, "states change only while an election runs"
        held = self._election.grant
        if new is LockState.LEADER and held is not None:
            self._term = Term(held, self._parts()[0].backend.fences)
            held.tell("leader_acquired")

    def _ended(self, task: asyncio.Task[None]) -> None:
        """The lifecycle is over, however it ended: wake whoever waits for it."""
        assert self._election is not None, "only a started leader ends"
        if not task.cancelled() and (error := task.exception()) is not None:
            self._facts.fact("internal_error", error=f"{type(error).__name__}: {error}")
        self._done()
        self._election.state = LockState.STOPPED
        if self._term is not None and self._term.is_valid:
            self._term.lost("the leader was cancelled")
        self._election.changed.set()
