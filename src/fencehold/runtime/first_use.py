"""Tables of what is declared after `store.init()`: looked for at the first use on that store, and made if need be."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from functools import partial

from fencehold.model.errors import FenceholdError, Unavailable
from fencehold.ports.backend import Backend, events_of, items_of
from fencehold.ports.events import Events
from fencehold.ports.items import ItemStore
from fencehold.ports.time_limit import TimeLimit
from fencehold.runtime.context import StoreContext

LOOK_LIMIT_S = 10.0
MAKE_LIMIT_S = 60.0
#: While a transaction of the caller's is open: it may hold the lock that making the tables waits for.
IN_TX_LIMIT_S = 2.0
MENDED_BY_INIT = ("schema_missing", "schema_old")

ITEMS = "the items"  # no outbox has a blank in its name
ANY_KIND = "item"  # all kinds share their tables

Make = Callable[[Backend], Events | ItemStore]


class FirstUse:
    """Once `store.init()` was called, what is declared later has its tables before its first statement.

    They are made on a connection of the store's own, never in a transaction of the caller's. Without `store.init()`
    nothing is looked for and nothing is made.
    """

    def __init__(self, context: StoreContext) -> None:
        self._context, self._facts = context, context.facts
        self._is_on = False
        self._ready: set[str] = set()
        self._turns: dict[str, asyncio.Lock] = {}  # touched on the keeper's loop only

    def begin(self, made: Iterable[str]) -> None:
        """`store.init()` has made these."""
        self._is_on = True
        self._ready |= set(made)

    def made(self, name: str) -> None:
        self._ready.add(name)

    def is_due(self, name: str) -> bool:
        return self._is_on and name not in self._ready

    async def outbox(self, name: str, *, in_tx: bool = False) -> None:
        """`in_tx`: a transaction of the caller's is open; raises Unavailable (busy) soon if that stands in the way."""
        if not self.is_due(name):
            return
        if not in_tx:
            await self._on_keeper(name, lambda backend: events_of(backend, name), MAKE_LIMIT_S)
            return
        try:
            await self._on_keeper(name, lambda backend: events_of(backend, name), IN_TX_LIMIT_S)
        except Unavailable as error:
            raise _in_the_way(name, error) if error.code == "busy" else error from error

    async def items(self) -> None:
        if self.is_due(ITEMS):
            await self._on_keeper(ITEMS, lambda backend: items_of(backend, ANY_KIND), MAKE_LIMIT_S)

    async def _on_keeper(self, name: str, make: Make, limit_s: float) -> None:
        backend = self._context.keeper.backend
        await self._context.keeper_loop.begin(self._in_turn(name, partial(make, backend), limit_s))

    async def _in_turn(self, name: str, tables: Callable[[], Events | ItemStore], limit_s: float) -> None:
        turn = self._turns.setdefault(name, asyncio.Lock())
        try:
            async with TimeLimit(limit_s):
                await turn.acquire()
        except TimeoutError:
            raise Unavailable("They are just being made, and that takes long.", code="busy") from None
        try:
            if name not in self._ready:
                await self._bring(name, tables(), limit_s)
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
            steps = await tables.schema.init(limit_s, lambda what: self._facts.schema_waiting(detail=what))
            self._facts.tables_made(tables=name, steps=steps)
        finally:
            await tables.close()


def _in_the_way(outbox: str, error: FenceholdError) -> Unavailable:
    return Unavailable(
        f"The tables of outbox {outbox!r} are not there yet, and could not be made while your transaction is open: "
        f"{error.message}",
        hint=f"Make them before it begins: store.outbox({outbox!r}) before `await store.init()`, or "
        "`await outbox.init()` after it.",
        code="busy",
    )
