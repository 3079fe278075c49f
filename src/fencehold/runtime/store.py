"""A connected database, from which leaders, outboxes and items are made."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterator
from contextlib import suppress
from typing import Any, Self, TypeVar, Unpack
from weakref import WeakSet

from fencehold.model import names
from fencehold.model.durations import Duration
from fencehold.model.election.retry import RetryStrategy
from fencehold.model.election.settings import OnError, leader_settings
from fencehold.model.errors import FenceholdError
from fencehold.model.items.settings import DOCUMENT_BYTES_MAX, item_settings
from fencehold.model.outbox.settings import DEFAULT_OUTBOX, PAYLOAD_BYTES_MAX, outbox_settings
from fencehold.ports.backend import Backend, items_of
from fencehold.ports.clock import Clock
from fencehold.ports.fact_table import OutageFacts
from fencehold.ports.facts import FactSink
from fencehold.ports.traces import TracePort
from fencehold.runtime.checkup import LEASES, StoreCheckup
from fencehold.runtime.context import ANY_KIND, ITEMS, KeeperServices, StoreContext
from fencehold.runtime.core import keeper_thread
from fencehold.runtime.core.block_kinds import AsyncBlock, NotAwaited
from fencehold.runtime.core.handler_loop import stop_all
from fencehold.runtime.core.keeper_thread import KeeperThread
from fencehold.runtime.core.repeated_failures import Outage
from fencehold.runtime.core.trust import fork_generation
from fencehold.runtime.election.leader import Candidates, Leader
from fencehold.runtime.election.leader_job import LeaderJob, check_async_job
from fencehold.runtime.election.lease_verbs import LeaseVerbs
from fencehold.runtime.election.term import Term
from fencehold.runtime.items.context import ItemsContext
from fencehold.runtime.items.items import Items
from fencehold.runtime.options import LeaderOptions, SeekOptions
from fencehold.runtime.outbox.context import OutboxContext
from fencehold.runtime.outbox.outbox import Outbox

OPEN_LIMIT_S = 10.0  # of one try
FIRST_OPEN_LIMIT_S = 4.0  # of the first try of many: so that an outage is logged within 5 s
INIT_LIMIT_S = 60.0

T = TypeVar("T")


class Store(AsyncBlock, NotAwaited):
    """A connected database, from which leaders, outboxes and items are made.

    Use it with `async with`, or `open` and `close`. Closing the store gives back every lease that it holds.
    """

    def __init__(
        self,
        make_backend: Callable[[], Backend],
        clock: Clock,
        facts: FactSink,
        traces: TracePort,
        *,
        label: str,
        open_timeout_s: float | None = None,
    ) -> None:
        self._context = context = StoreContext(make_backend, clock, facts, traces, label=label)
        self._open_timeout_s = open_timeout_s
        self._thread: KeeperThread | None = None
        self._opening = asyncio.Lock()
        self._candidates = Candidates()
        self._holder_id = names.default_holder_id()
        self.leases = LeaseVerbs(context, self._holder_id)
        self.checkup = StoreCheckup(context)
        self._outbox_context = OutboxContext(context)
        self._outboxes: dict[str, Outbox] = {}  # the first handle of each name
        self._items_context = ItemsContext(context)
        self._has_items = False
        self._jobs: WeakSet[LeaderJob] = WeakSet()

    def __repr__(self) -> str:
        return f"<Store {self._context.label}{'' if self.is_open else ' (closed)'}>"

    @property
    def is_open(self) -> bool:
        """True from `open` to `close`, even while the database does not answer."""
        return self._context.is_open

    async def open(self, timeout_s: float | None = None) -> Self:
        """Connect, and return this store.

        While the database is away it waits, and logs that within 5 s, then once a minute. Raises ConfigurationError at
        once when waiting cannot help: a refused login, a missing database. Raises Unavailable or Uncertain only when
        `timeout_s`, or else the `open_timeout` given to `connect`, is over (0: after the first try).
        """
        limit_s = self._open_timeout_s if timeout_s is None else timeout_s
        async with self._opening:  # of two concurrent calls the second finds it open
            if not self.is_open:
                thread, made = keeper_thread.enter(), list[KeeperServices]()
                try:
                    self._context.opened(await thread.begin(self._open(limit_s, made)), thread)
                except BaseException:
                    keeper_thread.leave_after(thread, _give_up(made))  # cancelled: it may be open by now
                    raise
                self._thread = thread
        return self

    async def _open(self, limit_s: float | None, made: list[KeeperServices]) -> KeeperServices:
        """Connect, on the keeper's loop, and return the services.

        They are also put into `made`, so that a caller that is cancelled can close them.
        """
        context = self._context
        keeper = KeeperServices(context.make_backend(), context.clock, context.facts)
        made.append(keeper)
        try:
            outage = Outage(OutageFacts(context.facts.sink, store=context.label), context.clock)
            limits = try_limits_s(limit_s)
            await outage.wait_for(lambda: keeper.open(next(limits)), limit_s)
        except BaseException:
            await keeper.backend.close()
            raise
        return keeper

    async def close(self) -> None:
        """Stop all that runs, give back every lease and item, disconnect. Idempotent.

        If the caller is cancelled, the store no longer waits for what runs, and disconnects in the background.
        """
        if self._thread is None:
            return
        if self._thread.generation != fork_generation():  # a forked child has nothing to stop or to give back
            return
        try:
            await self._stop_all()
        finally:
            await self._disconnect()

    async def _stop_all(self) -> None:
        leaders = list(self._candidates)
        try:
            for job in list(self._jobs):
                job.stop()
            await stop_all(self._outbox_context.workers)
            await self._items_context.close()
            for leader in leaders:
                await leader.shutdown(leader.settings.call_limit_s * 2)
        finally:
            for leader in leaders:
                leader._stop_at_once()

    async def _disconnect(self) -> None:
        thread, self._thread = self._thread, None
        if thread is None:
            return  # closed by another call meanwhile
        keeper = self._context.keeper
        self._context.closed()
        try:
            await keeper.backend.fences.close()
            await self.leases.close()
            await self._outbox_context.shared.close()
        finally:
            closed = keeper_thread.leave_after(thread, keeper.close())
            with suppress(FenceholdError):
                await asyncio.shield(asyncio.wrap_future(closed))

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def init(self) -> list[str]:
        """Create or upgrade the tables of leases, and of every outbox and the items declared on this store so far.

        This is safe to repeat, and to call in several processes at once. Tables of what is declared later are made at
        its first use on this store. Returns the steps applied by this call.
        """
        backend, keeper_loop = self._context.keeper.backend, self._context.keeper_loop
        outboxes, has_items = list(self._outboxes.values()), self._has_items
        steps = await keeper_loop.begin(backend.schema.init(INIT_LIMIT_S, self._waits))
        if has_items:
            steps += await keeper_loop.begin(self._init_items(backend))
        for outbox in outboxes:
            steps += await outbox.init()
        self._context.first_use.begin([outbox.name for outbox in outboxes] + ([ITEMS] if has_items else []))
        return steps

    async def missing(self) -> list[str]:
        """Return the names of what `init` would make now, such as `fencehold_leases.lease_id`; empty if all is there.

        This changes nothing, and needs no right to make tables.
        """
        declared = [LEASES, *([ITEMS] if self._has_items else []), *self._outboxes]
        found = await self.checkup.missing(list(self._outboxes))
        return [part for tables in declared for part in found[tables]]

    def _waits(self, what: str) -> None:
        self._context.facts.schema_waiting(detail=what)

    async def _init_items(self, backend: Backend) -> list[str]:
        """Make the items' tables, on the keeper's loop, and return the steps applied.

        All kinds of items share these tables.
        """
        items = items_of(backend, ANY_KIND)
        try:
            return await items.schema.init(INIT_LIMIT_S, self._waits)
        finally:
            await items.close()

    def outbox(
        self,
        name: str = DEFAULT_OUTBOX,
        *,
        lease: Duration = 30,
        heartbeat_every: Duration | None = None,
        max_retries: int = 5,
        reap_every: Duration | None = None,
        retry_base: Duration = 1,
        retry_cap: Duration = 30,
        payload_bytes_max: int = PAYLOAD_BYTES_MAX,
        event_types: Collection[str] | None = None,
        ordered: bool = False,
    ) -> Outbox:
        """Return the outbox in the table `name`.

        Raises ConfigurationError for a wrong setting, before anything is sent. `event_types`: the only types it accepts
        (without it, all). `ordered`: it hands out the events of one aggregate one at a time, oldest first.
        """
        settings = outbox_settings(
            lease=lease, heartbeat_every=heartbeat_every, max_retries=max_retries, reap_every=reap_every,
            retry_base=retry_base, retry_cap=retry_cap, payload_bytes_max=payload_bytes_max, event_types=event_types,
            in_order=ordered,
        )  # fmt: skip
        outbox = Outbox(names.table_name(name), settings, self._outbox_context)
        self._outboxes.setdefault(outbox.name, outbox)
        return outbox

    def items(
        self,
        kind: str,
        *,
        lease: Duration = 60,
        holder_id: str | None = None,
        heartbeat_every: Duration | None = None,
        stall_limit: Duration | None = None,
        document_bytes_max: int = DOCUMENT_BYTES_MAX,
    ) -> Items:
        """Return the items of this kind, each with at most one holder.

        Raises ConfigurationError for a wrong setting, before anything is sent. Without `holder_id` they get one that
        nobody else uses, in this process or another.
        """
        settings = item_settings(
            lease=lease, heartbeat_every=heartbeat_every, stall_limit=stall_limit,
            document_bytes_max=document_bytes_max,
        )  # fmt: skip
        who = names.holder_id(holder_id) if holder_id is not None else names.default_holder_id()
        items = Items(names.item_kind(kind), who, settings, self._items_context)
        self._has_items = True
        return items

    async def item_kinds(self) -> list[str]:
        """Return every kind that has an item."""
        return await self._items_context.kinds()

    def leader(
        self,
        name: str,
        *,
        lease: Duration = 30,
        renew_every: Duration | None = None,
        acquire_every: Duration | None = None,
        margin: Duration | None = None,
        stall_limit: Duration | None = None,
        holder_id: str | None = None,
        on_error: OnError = "retry",
        release_on_stop: bool = True,
        retry_strategy: RetryStrategy | None = None,
    ) -> Leader:
        """Return a candidate for the lease `name`, not yet started.

        Raises ConfigurationError for a wrong setting, before anything is sent. Also raises it (`duplicate_holder`) if
        this store has a candidate for this lease and this `holder_id` already.
        """
        settings = leader_settings(
            lease=lease, renew_every=renew_every, acquire_every=acquire_every, margin=margin, stall_limit=stall_limit,
            on_error=on_error, release_on_stop=release_on_stop,
        )  # fmt: skip
        leader = Leader(
            names.lease_name(name), names.holder_id(holder_id) if holder_id is not None else self._holder_id, settings,
            self._context, candidates=self._candidates, retry_strategy=retry_strategy,
        )  # fmt: skip
        self._candidates.enrol(leader)
        return leader

    async def run_as_leader(
        self,
        name: str,
        job: Callable[[Term], Awaitable[T]],
        *,
        lease: Duration = 30,
        stop: asyncio.Event | None = None,
        backoff: RetryStrategy | None = None,
        **settings: Unpack[SeekOptions],
    ) -> T | None:
        """Run `await job(term)` in this process while it leads, at most in one process at a time.

        Returns what the job returned, after the lease was given back. When its term ends, the job is cancelled, and
        called again with the next term. When the job raises, the traceback is logged, the lease is given back so that
        another may try, and the job is tried again after a pause: 1 to 60 s with jitter, or what `backoff` returns; if
        that returns None, the job's error is raised here. Returns None once `stop` is set or the store is closed. If
        the caller is cancelled, the job is cancelled too. Other settings are those of `store.leader`. Raises
        ConfigurationError for a job that is not async (`bad_job`), and at first contact when waiting cannot help. See
        docs/leader.md.
        """
        check_async_job(job)
        running = self._leader_job(name, backoff, stop.wait if stop is not None else None, lease=lease, **settings)
        value: T | None = await running.run(job)
        return value

    def _leader_job(
        self,
        name: str,
        backoff: RetryStrategy | None,
        until: Callable[[], Coroutine[Any, Any, object]] | None,
        **settings: Unpack[LeaderOptions],
    ) -> LeaderJob:
        """Make the LeaderJob that runs the steps of `run_as_leader`; `fencehold.sync` runs the steps in another way."""
        self._context.check_open()
        leader = self.leader(name, **settings)
        job = LeaderJob(leader, self._context, backoff, until)
        self._jobs.add(job)
        return job


def try_limits_s(limit_s: float | None) -> Iterator[float]:
    """Yield the time limit of each try to open the store, all within `limit_s` (0: there is one try).

    The first limit is short; the others are long enough for a server that is only slow.
    """
    if limit_s != 0:
        yield min(limit_s or FIRST_OPEN_LIMIT_S, FIRST_OPEN_LIMIT_S)
    yield from itertools.repeat(min(limit_s or OPEN_LIMIT_S, OPEN_LIMIT_S))


async def _give_up(made: list[KeeperServices]) -> None:
    """Close services that nobody will use, on the keeper's loop."""
    for engine in made:
        await engine.give_up()
