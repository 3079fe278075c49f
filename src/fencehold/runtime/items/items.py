"""`store.items(...)`: items of one kind, each with at most one holder at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Sequence
from typing import Any, NoReturn

from fencehold.model import names
from fencehold.model.durations import Duration
from fencehold.model.errors import AlreadyLeased, ConfigurationError, NoSuchItem, Uncertain
from fencehold.model.items.rules import ABSENT, ItemKey
from fencehold.model.items.settings import ItemSettings, checked_limit, document_json, processor_settings
from fencehold.model.json_types import Json
from fencehold.ports.items import EVER, ItemRefusal, ItemRow, NewItem, Stretch
from fencehold.runtime.core.cancel_scope import to_its_end
from fencehold.runtime.core.trust import DEADLINE_PASSED, REFUSED
from fencehold.runtime.handlers.types import ItemHandler
from fencehold.runtime.items.context import ItemsContext
from fencehold.runtime.items.item import LIMIT_S, Item, ItemView, view
from fencehold.runtime.items.keeper import BROKEN, DELETE_UNANSWERED, DELETED, GRANTED_TOO_LATE, ItemLease
from fencehold.runtime.items.processor import ItemProcessor

RENEW_BATCH = 1000
FIND_MAX = 1000
SEEN_ONLY = "What get(), find() or put() returned gives no right to write; acquire it."


class Items:
    """The items of one kind: documents with a state, each with at most one holder; made by `store.items(...)`.

    A holder that has lost its lease cannot write the item. Every call is one statement, decided by the store's clock.
    `holder_id` is unique to this object unless it is given; two processes must never share one.
    """

    def __init__(self, kind: str, holder_id: str, settings: ItemSettings, context: ItemsContext) -> None:
        self.kind, self.holder_id, self.settings = kind, holder_id, settings
        self._context = context

    # --- without a lease ---

    async def put(self, id: str, *, state: str, document: Json) -> ItemView:
        """Store the item, new or in place of the old one, and return it.

        Raises AlreadyLeased, and writes nothing, while another holder has the item.
        """
        new = NewItem(
            names.item_id(id), names.item_state(state), document_json(document, self.settings), self.holder_id
        )
        port = (await self._context.ready(self.kind)).port
        answer = await to_its_end(port.put(new, LIMIT_S))
        if isinstance(answer, ItemRefusal):
            self._refuse(new.id, answer)
        return view(self.kind, answer)

    async def get(self, id: str) -> ItemView | None:
        """Read the item as it is now, held or not, and return it; None if it does not exist."""
        port = (await self._context.ready(self.kind)).port
        rows = await port.get([names.item_id(id)], LIMIT_S)
        return view(self.kind, rows[id]) if id in rows else None

    async def find(self, state: str | None = None, limit: int = 100) -> list[ItemView]:
        """Read items as they are now, held or not: all, or those in one state.

        The longest in their state come first.
        """
        which = None if state is None else names.item_state(state)
        most = checked_limit(limit, FIND_MAX, "Ask for as many as you want to see.")
        rows = await (await self._context.ready(self.kind)).admin.find(which, most, LIMIT_S)
        return [view(self.kind, row) for row in rows]

    # --- leasing ---

    async def acquire(self, id: str) -> Item:
        """Acquire the item and return it: from now on only this object may write it.

        Raises AlreadyLeased while another holder has it, NoSuchItem if it does not exist. If this holder has the item
        already, its earlier lease ends, unless code is inside its `async with` block or its handler: then AlreadyLeased
        is raised too. Raises LeaseLost if the answer came so late that the lease is over.
        """
        item_id = names.item_id(id)
        (item,) = await self._granted(self._acquire(item_id))
        if not item.is_valid:
            item._lease.end(GRANTED_TOO_LATE)
            await self._context.break_quietly([item._lease])
            raise item._lease.error()
        return item

    async def next_for_state(self, state: str, limit: int = 20) -> list[Item]:
        """Acquire up to `limit` free items in this state, those longest in it first, and return them.

        An item that anybody holds, this holder included, is not among them. Enter each item with `async with` soon:
        until then nobody renews its lease.
        """
        return await self._next_but(names.item_state(state), checked_limit(limit), ())

    async def _next_but(self, state: str, limit: int, skip: Sequence[str], stretch: Stretch = EVER) -> list[Item]:
        """Acquire items as `next_for_state` does, for the processor, but none of those whose ids are in `skip`.

        `stretch` limits the search to items that came into the state within this span of time.
        """
        items = await self._granted(self._next(state, limit, skip, stretch))
        if late := [item._lease for item in items if not item.is_valid]:
            for lease in late:
                lease.end(GRANTED_TOO_LATE)
            await self._context.break_quietly(late)
        leased = len(items) - len(late)
        self._context.facts.items_leased(kind=self.kind, holder_id=self.holder_id, leased=leased)
        return [item for item in items if item.is_valid]

    async def renew(self, items: Item | Sequence[Item]) -> list[Item]:
        """Renew the leases for their full length from now. Returns the items still held; stop working on the others.

        This changes only the lease. An item whose local deadline has passed is lost without a request to the store.
        """
        held = self._checked(items)
        for lease_s in {item._lease.settings.lease_s for item in held}:
            same = [item._lease for item in held if item._lease.settings.lease_s == lease_s]
            for start in range(0, len(same), RENEW_BATCH):
                await self._renew(same[start : start + RENEW_BATCH], lease_s)
        return [item for item in held if item.is_valid]

    async def break_lease(self, id: str | Item) -> None:
        """End the item's lease now, if it is ours. Does nothing if nobody holds the item.

        Raises AlreadyLeased while another holder has the item.
        """
        key = self._checked(id)[0]._lease.key if isinstance(id, Item) else ItemKey(names.item_id(id), self.holder_id, 0)
        ours = self._context.held_by(self.kind, key.holder_id, key.id)
        if ours is not None and key.token in (0, ours.key.token):
            ours.end(BROKEN)
            self._context.let_go(ours)
        leases = (await self._context.ready(self.kind)).leases
        refused = await to_its_end(leases.break_leases([key], LIMIT_S))
        if refusal := refused.get(key):
            self._refuse(key.id, refusal)

    async def break_seen(self, seen: ItemView, *, by: str) -> None:
        """End exactly the lease in `seen`, whoever holds it; for operators.

        Raises AlreadyLeased if a later lease on the item has begun. Reports the fact `item_lease_broken`; `by` names
        the person who breaks the lease.
        """
        key = ItemKey(seen.id, seen.holder_id or "", seen.token)
        refused = await to_its_end(self._context.items(self.kind).leases.break_leases([key], LIMIT_S))
        if refusal := refused.get(key):
            self._refuse(key.id, refusal)
        self._context.facts.item_lease_broken(
            kind=self.kind, id=seen.id, holder_id=seen.holder_id, token=seen.token, by=by
        )

    # --- under a lease ---

    async def save(self, item: Item, *, state: str | None = None, document: Json = None) -> None:
        """Save the item's state or document, as `item.save(...)` does.

        Raises LeaseLost, and writes nothing, if we no longer hold the item.
        """
        (item,) = self._checked(item)
        await item.save(state=state, document=document)

    async def delete(self, item: Item) -> None:
        """Delete the item and its lease for good. Raises LeaseLost, and deletes nothing, if we no longer hold the item.

        Raises Uncertain if no answer came. The lease is over in this process in that case too, because the item may be
        deleted, and somebody else may have put another item in its place.
        """
        (item,) = self._checked(item)
        item.check()
        port, lease = self._context.items(self.kind).port, item._lease
        was_kept = self._context.drop(lease)  # else a renewal after the delete would be logged as a loss
        try:
            refusal = await to_its_end(port.delete(lease.key, LIMIT_S))
        except (Uncertain, asyncio.CancelledError):
            lease.end(DELETE_UNANSWERED)
            raise
        except BaseException:
            if was_kept and item.is_valid:
                self._context.keep(lease)
            raise
        if refusal is not None:
            raise lease.refused(refusal.reason)
        lease.end(DELETED)
        self._context.let_go(lease)

    # --- the loop ---

    def process(
        self,
        state: str,
        handler: ItemHandler,
        *,
        concurrency: int = 10,
        batch: int = 20,
        poll_every: Duration = 1,
        max_processing: Duration | None = None,
        shutdown_timeout: Duration | None = None,
    ) -> ItemProcessor:
        """Return a processor that runs `handler(item)` for every item in this state; call `run` to start it.

        Raises ConfigurationError for a wrong setting. Each item is under its lease while its handler runs. The handler
        saves the item's next state itself. An item that is still in this state afterwards, or whose handler raised, is
        free for others at once; this processor skips it for a pause that grows with every failure.
        """
        settings = processor_settings(
            self.settings.lease_s, concurrency=concurrency, batch=batch, poll_every=poll_every,
            max_processing=max_processing, shutdown_timeout=shutdown_timeout,
        )  # fmt: skip
        return ItemProcessor(self, names.item_state(state), handler, settings, self._context)

    # --- within ---

    async def _acquire(self, item_id: str) -> list[Item]:
        leases, settings = (await self._context.ready(self.kind)).leases, self.settings
        sent_s = self._context.clock.now_s()
        with self._context.asking(self.kind, self.holder_id, item_id):
            answer = await leases.acquire(item_id, self.holder_id, settings.lease_s, min(LIMIT_S, settings.trusted_s))
            if isinstance(answer, ItemRefusal):
                self._refuse(item_id, answer)
            self._context.facts.items_leased(kind=self.kind, holder_id=self.holder_id, leased=1)
            return [self._item(answer, sent_s)]

    async def _next(self, state: str, limit: int, skip: Sequence[str], stretch: Stretch) -> list[Item]:
        leases, settings = (await self._context.ready(self.kind)).leases, self.settings
        sent_s = self._context.clock.now_s()
        limit_s = min(LIMIT_S, settings.trusted_s)
        with self._context.open_asks.one():
            rows = await leases.next_for_state(state, limit, self.holder_id, settings.lease_s, limit_s, skip, stretch)
            return [self._item(row, sent_s) for row in rows]

    def _item(self, row: ItemRow, sent_s: float) -> Item:
        assert row.expires_at is not None, "just leased"
        lease = ItemLease(
            self.kind, row.key, row.expires_at, sent_s, self.settings, clock=self._context.clock,
            facts=self._context.facts.sink,
        )  # fmt: skip
        self._context.hold(lease)
        return Item(row, lease, self._context)

    async def _granted(self, asking: Coroutine[Any, Any, list[Item]]) -> list[Item]:
        """Await a request for leases and return the items that were granted.

        If the caller is cancelled, items that are granted later are given back.
        """
        task = asyncio.ensure_future(asking)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            task.add_done_callback(self._give_back_unseen)
            raise

    def _give_back_unseen(self, task: asyncio.Future[list[Item]]) -> None:
        if not task.cancelled() and task.exception() is None:
            leases = [item._lease for item in task.result()]
            for lease in leases:
                lease.end(BROKEN)
            self._context.start_breaking(leases)

    async def _renew(self, leases: list[ItemLease], lease_s: float) -> None:
        valid = [lease for lease in leases if lease.is_valid]
        for lease in leases:
            if not lease.is_valid:
                lease.end(DEADLINE_PASSED)
        if not valid:
            return
        sent_s = self._context.clock.now_s()
        port, limit_s = self._context.items(self.kind).leases, min(LIMIT_S, self.settings.trusted_s)
        renewed = await to_its_end(port.renew([lease.key for lease in valid], lease_s, limit_s))
        late: list[ItemLease] = []
        for lease in valid:
            if (until := renewed.get(lease.key)) is None:
                lease.end(REFUSED)
            elif not lease.renewed(until, sent_s):
                lease.end(DEADLINE_PASSED)
                late.append(lease)
        if late:
            await self._context.break_quietly(late)

    def _checked(self, items: Any) -> list[Item]:
        given: list[Any] = list(items) if isinstance(items, Iterable) else [items]
        for one in given:
            if not isinstance(one, Item) or one.kind != self.kind or one._context is not self._context:
                what = f"{one!r:.80}" if isinstance(one, Item) else f"A {type(one).__name__}"
                raise ConfigurationError(
                    f"{what} is no leased item of kind {self.kind!r} of this store.",
                    hint=SEEN_ONLY
                    if isinstance(one, ItemView)
                    else "Give what acquire() or next_for_state() returned.",
                    code="bad_item",
                )
        return given

    def _refuse(self, item_id: str, refusal: ItemRefusal) -> NoReturn:
        what, current = f"Item {item_id!r} of kind {self.kind!r}", refusal.current
        if refusal.reason == ABSENT or current is None:
            raise NoSuchItem(f"{what} does not exist.", hint="Put it first, or look for its id among its kind.")
        until = current.expires_at.isoformat() if current.expires_at else "some time"
        raise AlreadyLeased(
            f"{what} is held by {current.holder_id!r} until {until}; nothing was changed.",
            holder_id=current.holder_id or "", expires_at=current.expires_at,
            hint="Try again then: a lease that is not renewed ends by itself.",
        )  # fmt: skip
