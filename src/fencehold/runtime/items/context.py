"""What all items of one store share: connections, keepers, and which leases on items this process holds."""

from __future__ import annotations

import asyncio
import datetime as dt
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from weakref import WeakKeyDictionary

from fencehold.model.errors import AlreadyLeased, ConfigurationError, FenceholdError
from fencehold.model.items.settings import ItemSettings
from fencehold.ports.backend import items_of
from fencehold.ports.items import ItemStore
from fencehold.runtime.context import ANY_KIND, StoreContext
from fencehold.runtime.core.handler_loop import CLOSE_SLACK_S, HandlerLoop, stop_all
from fencehold.runtime.core.renewals import LoopLiveness
from fencehold.runtime.core.trust import STORE_CLOSED, fork_generation
from fencehold.runtime.items.keeper import SUPERSEDED, ItemKeeper, ItemLease

Place = tuple[str, str, str]  # kind, holder_id, id

BREAK_LIMIT_S = 5.0
KINDS_LIMIT_S = 10.0
PRUNE_AT = 1000


class OpenAsks:
    """Tracks requests for leases that have no answer yet, and the leases that have ended in this process since.

    The answer to such a request may grant an older lease on an item of which this same holder got a later lease
    meanwhile. The store let the later lease replace the older one, so the older one is over. Once the later lease has
    ended too, only this class still knows that.

    Any thread may use this class. It forgets a lease as soon as no request is open that was sent before the lease's
    end.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last = 0
        self._open: dict[int, None] = {}  # the oldest first
        self._ended: dict[Place, tuple[int, int]] = {}  # its token, and the last request sent before; oldest first

    @contextmanager
    def one(self) -> Iterator[None]:
        """Register one request for leases for the duration of the block.

        Call `hold` for each lease that the request was granted before the block ends.
        """
        with self._lock:
            self._last += 1
            mine = self._last
            self._open[mine] = None
        try:
            yield
        finally:
            with self._lock:
                del self._open[mine]
                self._forget(before=next(iter(self._open), self._last + 1))

    def ended(self, place: Place, token: int) -> None:
        """Record that the lease with this token has ended in this process."""
        with self._lock:
            if self._open:
                newest = max(token, self._ended.pop(place, (0, 0))[0])
                self._ended[place] = newest, self._last

    def has_ended(self, place: Place, token: int) -> bool:
        """Return whether a later lease on the same item has ended: that lease had replaced the one with this token."""
        with self._lock:
            return self._ended.get(place, (0, 0))[0] > token

    def _forget(self, before: int) -> None:
        while self._ended:
            oldest = next(iter(self._ended))
            if self._ended[oldest][1] >= before:
                return
            del self._ended[oldest]


class ItemsContext:
    """What all items of one store share, of whatever kind: connections, keepers, leases.

    There is one object per store.
    """

    def __init__(self, store: StoreContext) -> None:
        self._store = store
        self.clock, self.facts = store.clock, store.facts
        self.processors: set[HandlerLoop] = set()
        self._here: dict[tuple[asyncio.AbstractEventLoop, str], ItemStore] = {}
        self._keepers: dict[tuple[str, ItemSettings], ItemKeeper] = {}
        self._liveness_of: WeakKeyDictionary[asyncio.AbstractEventLoop, LoopLiveness] = WeakKeyDictionary()
        self._held: dict[Place, ItemLease] = {}
        self._inside: dict[Place, ItemLease] = {}  # leases whose bodies run, whether still held or not
        self._asked: set[Place] = set()  # items of acquires that have no answer yet
        self.open_asks = OpenAsks()
        self._doors = threading.Lock()  # for _inside and _asked: several event loops may share one Items
        self._prune_at = PRUNE_AT
        self._background: set[asyncio.Future[None]] = set()
        self._generation = fork_generation()

    # --- connections ---

    def items(self, kind: str) -> ItemStore:
        """Return the items of this kind for the caller's event loop. All items of one kind share one connection there.

        Raises ConfigurationError (`store_closed`) if the store is not open, or was opened by the parent of a forked
        process.
        """
        self._store.check_open()
        if self._generation != fork_generation():
            raise ConfigurationError(
                "The store belongs to the process that forked this one.",
                hint="Connect anew in a forked child.",
                code="store_closed",
            )
        loop = asyncio.get_running_loop()
        if (loop, kind) not in self._here:
            self._here[loop, kind] = items_of(self._store.backend, kind)
        return self._here[loop, kind]

    async def ready(self, kind: str) -> ItemStore:
        """Return the items of this kind, as `items(kind)` does, once their tables exist.

        The tables are made first if `store.init()` was called before any items were declared.
        """
        await self._store.first_use.items()
        return self.items(kind)

    async def kinds(self) -> list[str]:
        return await (await self.ready(ANY_KIND)).admin.kinds(KINDS_LIMIT_S)

    # --- what is held ---

    def hold(self, lease: ItemLease) -> None:
        """Record a lease that was granted.

        If the same holder has two leases on one item, the older one ends, as in the store.
        """
        place = self._place(lease)
        before, token = self._held.get(place), lease.key.token
        is_older = before is not None and before.key.token > token  # the answers came in the opposite order
        if is_older or self.open_asks.has_ended(place, token):
            lease.end(SUPERSEDED)
            return
        if before is not None and before.end(SUPERSEDED) and self._inside.get(place) is before:
            before.log_lost()
        self._held[place] = lease
        if len(self._held) > self._prune_at:  # leases that lapsed unused: nobody will ever give them back
            self._held = {place: lease for place, lease in self._held.items() if lease.is_valid}
            self._prune_at = max(PRUNE_AT, 2 * len(self._held))

    def held_by(self, kind: str, holder_id: str, item_id: str) -> ItemLease | None:
        return self._held.get((kind, holder_id, item_id))

    def let_go(self, lease: ItemLease) -> None:
        place = self._place(lease)
        if self._held.get(place) is lease:
            self._held.pop(place, None)
            self.open_asks.ended(place, lease.key.token)

    # --- whose bodies run ---

    @contextmanager
    def asking(self, kind: str, holder_id: str, item_id: str) -> Iterator[None]:
        """Mark the item as being acquired during the block.

        Raises AlreadyLeased if this holder is acquiring the item already, or if code of this holder works on the item
        now: the new lease would end the lease of that code.
        """
        place = (kind, holder_id, item_id)
        with self._doors:
            inside = self._inside.get(place)
            is_held = inside is not None and inside.is_valid
            if is_held or place in self._asked:
                raise held_here(place, inside.expires_at if inside is not None and is_held else None)
            self._asked.add(place)
        try:
            with self.open_asks.one():
                yield
        finally:
            self._asked.discard(place)

    def enter(self, lease: ItemLease) -> None:
        """Mark the item as in use in this process.

        If this holder is acquiring the item again at this moment, end the lease and raise LeaseLost.
        """
        place = self._place(lease)
        with self._doors:
            is_ours = place not in self._asked
            if is_ours:
                self._inside[place] = lease
        if not is_ours:
            lease.end(SUPERSEDED)
            raise lease.error()

    def leave(self, lease: ItemLease) -> None:
        place = self._place(lease)
        if self._inside.get(place) is lease:
            self._inside.pop(place, None)

    def ids_inside(self, kind: str, holder_id: str) -> set[str]:
        with self._doors:
            return {place[2] for place in self._inside if place[:2] == (kind, holder_id)}

    def _place(self, lease: ItemLease) -> Place:
        return lease.kind, lease.key.holder_id, lease.key.id

    # --- keeping ---

    def keep(self, lease: ItemLease) -> None:
        loop = asyncio.get_running_loop()
        if loop not in self._liveness_of:
            self._liveness_of[loop] = LoopLiveness(loop, self.clock)
        lease.liveness = self._liveness_of[loop]
        which = (lease.kind, lease.settings)
        if which not in self._keepers:
            self._keepers[which] = ItemKeeper(*which, self._store)
        self._keepers[which].keep(lease)

    def drop(self, lease: ItemLease) -> bool:
        """Stop renewing the lease. Returns True if it was being renewed."""
        keeper = self._keepers.get((lease.kind, lease.settings))
        return keeper is not None and keeper.drop(lease)

    # --- giving back ---

    async def break_quietly(self, leases: Iterable[ItemLease]) -> None:
        """Forget leases that have ended in this process, then break them in the store, within a limit.

        There is one statement per kind. A failure is logged as `item_break_failed` and not raised: the lease then
        lapses.
        """
        by_kind: dict[str, list[ItemLease]] = {}
        for lease in leases:
            self.let_go(lease)
            if not lease.is_inherited:  # a forked child has nothing to give back
                by_kind.setdefault(lease.kind, []).append(lease)
        for kind, same in by_kind.items():
            try:
                await self.items(kind).leases.break_leases([lease.key for lease in same], BREAK_LIMIT_S)
            except FenceholdError as error:
                for lease in same:
                    lease.facts.item_break_failed(sql_error=str(error))

    def start_breaking(self, leases: Iterable[ItemLease]) -> None:
        """Start `break_quietly` in the background. `close` waits for it."""
        task = asyncio.ensure_future(self.break_quietly(list(leases)))
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def close(self) -> None:
        """Stop all processors, give back every item and close the connections.

        Call it before the store's own parts are closed.
        """
        await stop_all(self.processors)
        if self._background:
            await asyncio.wait(self._background, timeout=BREAK_LIMIT_S + CLOSE_SLACK_S)
        held = [lease for lease in self._held.values() if lease.is_valid]
        for lease in held:
            lease.end(STORE_CLOSED)
        await self.break_quietly(held)
        self._held.clear()
        for keeper in self._keepers.values():
            await keeper.stop()
        self._keepers.clear()
        while self._here:
            await self._here.popitem()[1].close()


def held_here(place: Place, until: dt.datetime | None) -> AlreadyLeased:
    kind, holder_id, item_id = place
    how = f"is held by {holder_id!r}, which is this holder," if until else f"is being acquired by {holder_id!r}"
    when = f" until {until.isoformat()}" if until else ""
    return AlreadyLeased(
        f"Item {item_id!r} of kind {kind!r} {how}{when}; nothing was changed.", holder_id=holder_id, expires_at=until,
        hint="Another task or thread of this very process has it: wait for it, or use a store.items(...) for each.",
    )  # fmt: skip
