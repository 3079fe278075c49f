"""One leased item, for the code that works on it."""

from __future__ import annotations

import asyncio
import datetime as dt
import json
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Generic, Self

from fencehold.model.errors import ConfigurationError, Unavailable, Uncertain
from fencehold.model.items.settings import checked_change
from fencehold.model.json_types import J, Json
from fencehold.ports.items import ItemRefusal, ItemRow
from fencehold.runtime.core.block_kinds import AsyncBlock
from fencehold.runtime.core.cancel_scope import CancelScope, to_its_end
from fencehold.runtime.core.keeper_thread import post_to
from fencehold.runtime.core.trust import DEADLINE_PASSED
from fencehold.runtime.items.context import ItemsContext
from fencehold.runtime.items.keeper import DONE, GONE, LEFT, ItemLease

LIMIT_S = 10.0
SAVE_NOW_LIMIT_S = LIMIT_S + 5.0


@dataclass(frozen=True, slots=True)
class ItemView(Generic[J]):
    """An item as it was when the store answered. It gives no right to write.

    `holder_id` is None if nobody holds the item. `ItemView[Contract]` and `Item[Contract]` give a type checker the type
    of the document; it is not checked at run time.
    """

    id: str
    kind: str
    state: str
    state_timestamp: dt.datetime
    document: J = field(repr=False)
    token: int = 0
    holder_id: str | None = None
    leased_at: dt.datetime | None = None
    expires_at: dt.datetime | None = None


def view(kind: str, row: ItemRow) -> ItemView:
    return ItemView(
        row.id, kind, row.state, row.state_timestamp, json.loads(row.document_json), row.token, row.holder_id,
        row.leased_at, row.expires_at,
    )  # fmt: skip


class ItemFields:
    """The fields of a leased item that the async and the sync Item share. None of them does I/O."""

    _lease: ItemLease

    @property
    def id(self) -> str:
        return self._lease.key.id

    @property
    def kind(self) -> str:
        return self._lease.kind

    @property
    def holder_id(self) -> str:
        return self._lease.key.holder_id

    @property
    def token(self) -> int:
        """The fencing token: higher than that of every earlier lease on this item."""
        return self._lease.key.token

    @property
    def expires_at(self) -> dt.datetime:
        """When the lease expires, by the store's clock, as of the last renewal."""
        return self._lease.expires_at

    @property
    def is_valid(self) -> bool:
        return self._lease.is_valid

    @property
    def remaining_s(self) -> float:
        """Seconds until the local deadline, if no further renewal succeeds; 0 once the lease is over."""
        return self._lease.remaining_s

    @property
    def ended_because(self) -> str | None:
        return self._lease.ended_because or None

    def check(self) -> None:
        """Raise LeaseLost unless the item is ours at this instant."""
        self._lease.check()


class Item(AsyncBlock, ItemFields, Generic[J]):
    """One item under a lease of this process, for the code that works on it.

    Only this holder may write the item, until a local deadline that falls before the store's own expiry. The store
    checks every write too. `async with item:` renews the lease while the body runs and breaks it however the body ends.
    If the lease is lost meanwhile, the body is cancelled and the block raises LeaseLost, unless the body raises another
    error. So if a block ends without an error, the item was held until its end.
    """

    def __init__(self, row: ItemRow, lease: ItemLease, context: ItemsContext) -> None:
        self._lease = lease
        self._context = context
        self._body: CancelScope | None = None
        self._loop = asyncio.get_running_loop()
        self.has_saved = False
        self._renew_fields(row)

    def _renew_fields(self, row: ItemRow) -> None:
        self.state = row.state
        self.state_timestamp = row.state_timestamp
        self.document: J = json.loads(row.document_json)

    def __repr__(self) -> str:
        held = f"until {self.expires_at.isoformat()}" if self.is_valid else f"over: {self._lease.why_over}"
        return f"<Item {self.kind}/{self.id} {self.state} token={self.token} {held}>"

    async def save(self, *, state: str | None = None, document: Json = None) -> None:
        """Save the state, the document or both, in the store and in this object. A value of None is left as it was.

        Raises LeaseLost, and writes nothing, if we no longer hold the item. Naming a state, even the current one, moves
        the item to the end of that state's queue.
        """
        change = checked_change(state, document, self._lease.settings)
        self.check()
        limit_s = min(LIMIT_S, max(self._lease.settings.call_limit_s, self.remaining_s))
        port = self._context.items(self.kind).port
        # Shielded: the outcome of a statement that is cut short is unknown. So a break that follows waits for it.
        answer = await to_its_end(port.save(self._lease.key, *change, limit_s))
        if isinstance(answer, ItemRefusal):
            raise self._lease.refused(answer.reason)
        self.has_saved = True
        self._renew_fields(answer)

    def save_now(self, *, state: str | None = None, document: Json = None) -> None:
        """`save` for a handler that is a plain function: blocks its thread until the item is saved.

        Raises ConfigurationError (`on_loop`) if it is called on the item's own event loop, Unavailable (`loop_closed`)
        if that loop is closed, and Uncertain if the loop gives no answer in time.
        """
        self.check()  # a forked child does not have the event loop
        with suppress(RuntimeError):
            if asyncio.get_running_loop() is self._loop:
                hint = "Use `await item.save(...)` there."
                raise ConfigurationError("save_now() would block the event loop for ever.", hint=hint, code="on_loop")
        work = self.save(state=state, document=document)
        try:
            saving = asyncio.run_coroutine_threadsafe(work, self._loop)
        except RuntimeError:
            work.close()
            raise Unavailable("The item's event loop is closed; nothing was saved.", code="loop_closed") from None
        try:
            saving.result(SAVE_NOW_LIMIT_S)
        except TimeoutError:
            if not saving.done():
                saving.cancel()
                hint = "Something blocks that loop. Read the item again before anything else."
                raise Uncertain("The item's event loop gave no answer in time.", hint=hint, code="timeout") from None
            raise

    # --- the cancel scope ---

    async def __aenter__(self) -> Self:
        self.check()
        if self._body is not None:
            raise ConfigurationError(
                f"Item {self.id!r} is in a `with` block already.",
                hint="One block per lease: the body of the first would lose it at the end of the second.",
                code="already_entered",
            )
        self._context.enter(self._lease)
        self._loop = asyncio.get_running_loop()
        self._body = CancelScope("the lease on the item is over")
        self._lease.on_end = self._ended
        try:
            self._context.keep(self._lease)
        except BaseException:
            self._context.leave(self._lease)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        body, lease = self._body, self._lease
        assert body is not None, "entered"
        body.has_left = True
        if not lease.is_valid:
            lease.end(DEADLINE_PASSED)
        is_lost = bool(lease.ended_because) and lease.ended_because not in DONE
        self._context.drop(lease)
        self._context.leave(lease)
        cancelled = await self._give_back()
        is_ours = body.leave()
        if cancelled is not None and not is_ours:
            raise cancelled
        if is_lost and (error is None or (is_ours and isinstance(error, asyncio.CancelledError))):
            raise lease.error() from None

    async def _give_back(self) -> asyncio.CancelledError | None:
        """End the lease in this process and break it in the store, within a limit.

        If the caller is cancelled meanwhile, the CancelledError is returned, not raised; else None is returned.
        """
        lease = self._lease
        is_gone = lease.ended_because in GONE
        lease.end(LEFT)
        waits = [] if is_gone else [asyncio.ensure_future(self._context.break_quietly([lease]))]
        cancelled: asyncio.CancelledError | None = None
        while waits and not waits[0].done():
            try:
                await asyncio.wait(waits)
            except asyncio.CancelledError as error:
                cancelled = error
        return cancelled

    def _ended(self) -> None:
        """Cancel the body on its event loop, because the lease has ended. Called on any thread."""
        if self._body is not None and self._lease.ended_because not in DONE:
            post_to(self._loop, self._body.cancel)  # on a closed loop there is no body any more
