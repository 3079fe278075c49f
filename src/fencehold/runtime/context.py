"""What all parts of one store share: its backend, its clock, where facts go, and the keeper while it is open."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress

from fencehold.model.errors import ConfigurationError, FenceholdError, Unavailable
from fencehold.ports.backend import Backend, events_of, items_of
from fencehold.ports.clock import Clock
from fencehold.ports.events import Events
from fencehold.ports.fact_table import StoreFacts
from fencehold.ports.facts import FactSink
from fencehold.ports.items import ItemStore
from fencehold.ports.time_limit import TimeLimit
from fencehold.ports.traces import TracePort
from fencehold.runtime.core.keeper_thread import KeeperLoop, lasting
from fencehold.runtime.election.keeper import Keeper
from fencehold.runtime.election.watch import Watch

LISTEN_LIMIT_S = 2.0  # an attempt to acquire may wait for the same connection
LOOK_LIMIT_S = 10.0
MAKE_LIMIT_S = 60.0
#: While a transaction of the caller's is open: it may hold the lock that making the tables waits for.
IN_TX_LIMIT_S = 2.0
MENDED_BY_INIT = ("schema_missing", "schema_old")

ITEMS = "the items"  # no outbox has a blank in its name
ANY_KIND = "item"  # all kinds share their tables

Make = Callable[[Backend], Events | ItemStore]


class StoreContext:
    """What all parts of one store share. It is made once per store and given to each part in place of the store itself.

    `keeper` and `keeper_loop` raise ConfigurationError (`store_closed`) while the store is not open.
    """

    def __init__(
        self, make_backend: Callable[[], Backend], clock: Clock, facts: FactSink, traces: TracePort, *, label: str
    ) -> None:
        self.make_backend = make_backend
        self.clock, self.facts, self.traces = clock, StoreFacts(facts), traces
        self.label = label
        self._opened: tuple[KeeperServices, KeeperLoop] | None = None
        self._statements_only: Backend | None = None
        self.first_use = FirstUse(self)

    @property
    def is_open(self) -> bool:
        return self._opened is not None

    def opened(self, keeper: KeeperServices, keeper_loop: KeeperLoop) -> None:
        self._opened = keeper, keeper_loop

    def closed(self) -> None:
        self._opened = None

    def check_open(self) -> tuple[KeeperServices, KeeperLoop]:
        """Return the keeper and its loop. Raises ConfigurationError (`store_closed`) unless the store is open."""
        if self._opened is None:
            raise store_closed()
        return self._opened

    @property
    def keeper(self) -> KeeperServices:
        """The keeper and the watch of this store's leases; use them on `keeper_loop` only."""
        return self.check_open()[0]

    @property
    def keeper_loop(self) -> KeeperLoop:
        return self.check_open()[1]

    @property
    def backend(self) -> Backend:
        """A backend that makes outboxes and items, each on a connection of its own. It is never opened itself."""
        if self._statements_only is None:
            self._statements_only = self.make_backend()
        return self._statements_only


class KeeperServices:
    """The keeper and the watch of one store, which run together; made and used on the keeper's loop only.

    The keeper renews the leases that this process holds; the watch reads leases that others hold.
    """

    def __init__(self, backend: Backend, clock: Clock, facts: StoreFacts) -> None:
        self.backend = backend
        self.keeper = Keeper(backend.leases, clock, facts.sink)
        self.watch = Watch(backend.leases, backend.wakeup, clock, facts.sink, self.keeper.hint)
        self._facts = facts
        self._tasks: list[asyncio.Task[None]] = []
        self._listening = False
        self._is_unwanted = False

    async def open(self, limit_s: float) -> None:
        await self.backend.open(limit_s)
        if self._is_unwanted:
            raise asyncio.CancelledError
        parts = (self.keeper.run, self.watch.run)
        self._tasks = [asyncio.create_task(lasting(run, self._facts)) for run in parts]

    async def listen(self) -> None:
        """Start to listen for hints: notifications of the database that a lease has changed, which may fail to come.

        Only leaders, followers and observers need hints; a command that runs once does not.
        """
        if not self._listening:
            self._listening = True
            with suppress(FenceholdError):  # it is for hints only; every later connection tries again
                await self.backend.wakeup.listen(LISTEN_LIMIT_S)

    async def give_up(self) -> None:
        """Undo `open`, because its caller was cancelled: close the services, or make a running `open` fail."""
        self._is_unwanted = True
        if self._tasks:
            await self.close()

    async def close(self) -> None:
        await self.keeper.close()
        self.watch.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.backend.close()


class FirstUse:
    """Makes the tables of an outbox or of the items at first use, if they were declared after `store.init()`.

    The tables are made on a connection of the store's own, never in a transaction of the caller's. If `store.init()`
    was never called, no tables are looked for and none are made.
    """

    def __init__(self, store: StoreContext) -> None:
        self._store = store
        self._is_on = False
        self._ready: set[str] = set()
        self._turns: dict[str, asyncio.Lock] = {}  # touched on the keeper's loop only

    def begin(self, made: Iterable[str]) -> None:
        """Record that `store.init()` has been called, and that the outboxes and items in `made` have their tables."""
        self._is_on = True
        self._ready |= set(made)

    def made(self, name: str) -> None:
        self._ready.add(name)

    async def outbox(self, name: str, *, in_tx: bool = False) -> None:
        """Make this outbox's tables, if `store.init()` was called before the outbox was declared; else do nothing.

        `in_tx`: a transaction of the caller's is open. If that transaction blocks the making of the tables, this raises
        Unavailable (`busy`) within IN_TX_LIMIT_S.
        """
        if not self._is_due(name):
            return
        try:
            await self._tables(name, lambda backend: events_of(backend, name), IN_TX_LIMIT_S if in_tx else MAKE_LIMIT_S)
        except Unavailable as error:
            if not in_tx or error.code != "busy":
                raise
            raise _in_the_way(name, error) from error

    async def items(self) -> None:
        if self._is_due(ITEMS):
            await self._tables(ITEMS, lambda backend: items_of(backend, ANY_KIND), MAKE_LIMIT_S)

    def _is_due(self, name: str) -> bool:
        return self._is_on and name not in self._ready

    async def _tables(self, name: str, make: Make, limit_s: float) -> None:
        keeper, keeper_loop = self._store.check_open()
        await keeper_loop.begin(self._in_turn(name, make, keeper.backend, limit_s))

    async def _in_turn(self, name: str, make: Make, backend: Backend, limit_s: float) -> None:
        """Make the tables if they are not there yet; callers wait for each other. Runs on the keeper's loop.

        Raises Unavailable (`busy`) if another caller is still making them after `limit_s`.
        """
        turn = self._turns.setdefault(name, asyncio.Lock())
        try:
            async with TimeLimit(limit_s):
                await turn.acquire()
        except TimeoutError:
            raise Unavailable("They are just being made, and that takes long.", code="busy") from None
        try:
            if name not in self._ready:
                await self._bring(name, make(backend), limit_s)
                self._ready.add(name)
        finally:
            turn.release()

    async def _bring(self, name: str, tables: Events | ItemStore, limit_s: float) -> None:
        try:
            fault = await tables.schema.fault(LOOK_LIMIT_S)  # takes no lock, needs no more rights than daily use
            if fault is None:
                return
            if fault.code not in MENDED_BY_INIT:
                raise fault
            steps = await tables.schema.init(limit_s, lambda what: self._store.facts.schema_waiting(detail=what))
            self._store.facts.tables_made(tables=name, steps=steps)
        finally:
            await tables.close()


def store_closed() -> ConfigurationError:
    return ConfigurationError(
        "The store is not open.",
        hint="Use `async with fencehold.connect(...) as store:` or `await store.open()`.",
        code="store_closed",
    )


def _in_the_way(outbox: str, error: FenceholdError) -> Unavailable:
    return Unavailable(
        f"The tables of outbox {outbox!r} are not there yet, and could not be made while your transaction is open: "
        f"{error.message}",
        hint=f"Make them before it begins: store.outbox({outbox!r}) before `await store.init()`, or "
        "`await outbox.init()` after it.",
        code="busy",
    )
