"""Named leases in memory: shared by all stores of one process that use the same memory:// name."""

from __future__ import annotations

import datetime as dt
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractContextManager, asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from fencehold.backends.absent import NoCheckup, NoTables
from fencehold.backends.memory.hints import MemoryHints
from fencehold.backends.memory.items import ItemShelf, MemoryItems
from fencehold.backends.memory.outbox.events import MemoryEvents
from fencehold.backends.memory.outbox.shelf import EventShelf
from fencehold.model.election.places import UNKNOWN, Place
from fencehold.model.election.rules import (
    Ask,
    Busy,
    Lease,
    Refusal,
    Request,
    Row,
    Rule,
    TermKey,
    Verb,
    decide,
    is_holder,
    refusal_reason,
    row_state,
)  # fmt: skip
from fencehold.model.errors import ConfigurationError, LeaseLost
from fencehold.ports.fence import GuardText, Params, Ready, RemainingS, SyncTransaction
from fencehold.ports.leases import Answer
from fencehold.ports.wakeup import ACQUIRED, ASKED, RELEASED, Hint

EPOCH_START = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


@dataclass
class Shelf:
    """The rows of one memory store, which all stores of this process with the same memory:// name share.

    One lock makes every verb atomic. `fenced` counts the open fenced transactions for each lease; while there is one,
    nobody can take over the lease, even if it lapses.
    """

    now_s: Callable[[], float] = time.time
    rows: dict[str, Lease] = field(default_factory=dict)
    lock: threading.RLock = field(default_factory=threading.RLock)
    fenced: dict[str, int] = field(default_factory=dict)
    hints: list[Hint] = field(default_factory=list)
    fired: list[str] = field(default_factory=list)
    outboxes: dict[str, EventShelf] = field(default_factory=dict)
    items: ItemShelf = field(init=False)
    #: Memory has no timelines; the simulation sets these.
    place: Place = UNKNOWN
    origin: Place = UNKNOWN

    def __post_init__(self) -> None:
        self.items = ItemShelf(self.now)

    def now(self) -> dt.datetime:
        return EPOCH_START + dt.timedelta(seconds=self.now_s())

    def view(self, row: Lease | None) -> Lease | None:
        return row and replace(row, remaining_s=(row.expires_at - self.now()).total_seconds())

    def apply(self, verb: Verb, request: Request) -> Rule | None:
        rule = decide(self.rows.get(request.name), verb, request)
        if rule:
            self.rows[request.name] = rule.then(self.rows.get(request.name), request)
            self.fired.append(rule.id)
        return rule

    def outbox(self, table: str) -> EventShelf:
        with self.lock:
            return self.outboxes.setdefault(table, EventShelf(self.now))

    def notify(self, what: str, name: str) -> None:
        for hint in list(self.hints):
            hint(what, name)


_SHELVES: dict[str, Shelf] = {}


def shelf(name: str) -> Shelf:
    return _SHELVES.setdefault(name, Shelf())


class MemoryLeases:
    def __init__(self, shelf: Shelf) -> None:
        self._shelf = shelf

    async def acquire(self, ask: Ask, limit_s: float) -> Answer:
        s = self._shelf
        with s.lock:
            row = s.rows.get(ask.name)
            if s.fenced.get(ask.name) and row is not None and row.expires_at <= s.now():
                return Busy(s.view(row))
            request = Request(ask.name, s.now(), ask.holder_id, 0, ask.lease_s, ask.nonce, s.place, s.origin)
            if s.apply(Verb.ACQUIRE, request) is None:
                return Refusal("held", s.view(row))
            lease = s.view(s.rows[ask.name])
        s.notify(ACQUIRED, ask.name)
        assert lease is not None, "just granted"
        return lease

    async def renew(self, keys: Sequence[TermKey], limit_s: float) -> list[Answer]:
        return [self._change(Verb.RENEW, key) for key in keys]

    async def release(self, keys: Sequence[TermKey], limit_s: float) -> list[Answer]:
        answers = [self._change(Verb.RELEASE, key) for key in keys]
        for key, answer in zip(keys, answers, strict=True):
            if isinstance(answer, Lease):
                self._shelf.notify(RELEASED, key.name)
        return answers

    async def read(self, names: Sequence[str], limit_s: float) -> dict[str, Lease]:
        with self._shelf.lock:
            views = (self._shelf.view(self._shelf.rows.get(name)) for name in names)
            return {view.name: view for view in views if view}

    async def list(self, prefix: str, limit_s: float) -> list[Lease]:
        with self._shelf.lock:
            found = (self._shelf.view(r) for name, r in sorted(self._shelf.rows.items()) if name.startswith(prefix))
            return [view for view in found if view]

    async def ask_step_down(self, name: str, epoch: int, limit_s: float) -> Answer:
        answer = self._change(Verb.ASK_STEP_DOWN, TermKey(name, "", epoch, 0.0))
        self._shelf.notify(ASKED, name)
        return answer

    def _change(self, verb: Verb, key: TermKey) -> Answer:
        s = self._shelf
        with s.lock:
            row = s.rows.get(key.name)
            now = s.now()
            if s.apply(verb, Request(key.name, now, key.holder_id, key.epoch, key.lease_s)) is None:
                return Refusal(refusal_reason(row, now), s.view(row))
            lease = s.view(s.rows[key.name])
            assert lease is not None, "the rule kept the row"
            return lease


def no_sql() -> ConfigurationError:
    return ConfigurationError(
        "The memory store runs Python callables, not SQL.", hint="Use sqlite:// for SQL.", code="no_sql"
    )


class MemoryTransaction:
    """A fenced transaction in memory. Its statements are Python functions, because memory has no SQL.

    The functions are called at the end of the block; if the block fails, none is called.
    """

    def __init__(self) -> None:
        self.connection: Any = None
        self.pending: list[Callable[[], Any]] = []

    async def execute(self, statement: Any, params: Params = None) -> Any:
        if not callable(statement):
            raise no_sql()
        self.pending.append(statement)


class MemoryFences:
    def __init__(self, shelf: Shelf) -> None:
        self._shelf = shelf

    @asynccontextmanager
    async def transaction(self, key: TermKey, remaining_s: RemainingS) -> AsyncIterator[MemoryTransaction]:
        s = self._shelf
        with s.lock:
            self._check(key, remaining_s)
            s.fenced[key.name] = s.fenced.get(key.name, 0) + 1
        try:
            tx = MemoryTransaction()
            yield tx
            with s.lock:
                self._check(key, remaining_s, only_epoch=True)
                for statement in tx.pending:
                    statement()
        finally:
            with s.lock:
                s.fenced[key.name] -= 1
                lapsed = row_state(s.rows.get(key.name), s.now()) is Row.LAPSED
            if lapsed:  # nobody could take it over until now
                s.notify(RELEASED, key.name)

    def transaction_sync(self, key: TermKey, remaining_s: RemainingS) -> AbstractContextManager[SyncTransaction]:
        raise no_sql()

    def fence(self, target: object, key: TermKey, over: bool = False) -> Awaitable[None]:
        with self._shelf.lock:
            self._check(key, lambda: 0.0 if over else 1.0)
        return Ready(None)

    async def spoil(self, target: object) -> None:
        return None

    def guard(self, key: TermKey) -> GuardText:
        raise no_sql()

    async def close(self) -> None:
        return None

    def _check(self, key: TermKey, remaining_s: RemainingS = lambda: 1.0, only_epoch: bool = False) -> None:
        row = self._shelf.rows.get(key.name)
        request = Request(key.name, self._shelf.now(), key.holder_id, key.epoch)
        live = row is not None and (only_epoch or row.expires_at > request.now)
        if remaining_s() <= 0 or not (live and is_holder(row, request)):
            raise LeaseLost(f"Lease {key.name!r} epoch {key.epoch} is over.", name=key.name, epoch=key.epoch)


class MemoryBackend:
    name = "the memory store"

    def __init__(self, shelf: Shelf) -> None:
        self._shelf = shelf
        self.leases = MemoryLeases(shelf)
        self.fences = MemoryFences(shelf)
        self.schema = NoTables("the memory store")
        self.wakeup = MemoryHints(shelf.hints)
        self.checkup = NoCheckup("the store is in memory")

    def events(self, table: str) -> MemoryEvents:
        return MemoryEvents(self._shelf.outbox(table))

    def items(self, kind: str) -> MemoryItems:
        return MemoryItems(self._shelf.items, kind)

    async def open(self, limit_s: float) -> None:
        return None

    async def close(self) -> None:
        self.wakeup.close()
