"""Items for programs without an event loop: calls that block, `with item:`, handlers that are plain functions.

Two things are not possible without an event loop: a body is not cancelled when its lease is lost, and a program that
hangs is not detected. So check `item.is_valid` (or call `item.check()`) often; a save that comes too late is refused.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Self, TypeAlias, Unpack

from fencehold.model.json_types import J, Json
from fencehold.runtime.core.block_kinds import PlainBlock
from fencehold.runtime.items import item as _item
from fencehold.runtime.items import items as _items
from fencehold.runtime.items import processor as _processor
from fencehold.runtime.items.item import ItemView
from fencehold.runtime.items.processor import check_handler
from fencehold.runtime.options import ProcessOptions
from fencehold.sync.background_loop import BackgroundLoop


class Item(PlainBlock, _item.ItemFields, Generic[J]):
    """One item under a lease of this process, for the code that works on it.

    Only this holder may write the item, until a local deadline that falls before the store's own expiry. The store
    checks every write too. `with item:` renews the lease while the body runs and breaks it however the body ends. If
    the lease was lost meanwhile, the block raises LeaseLost, unless the body raises another error.
    """

    def __init__(self, loop: BackgroundLoop, item: _item.Item[J]) -> None:
        self._loop, self._item, self._lease = loop, item, item._lease

    if not TYPE_CHECKING:  # hidden from type checkers, which would accept every misspelt name

        def __getattr__(self, name: str) -> Any:
            """Return an attribute of the async item, for every name that this class does not define."""
            return getattr(self._item, name)

    @property
    def state(self) -> str:
        return self._item.state

    @property
    def state_timestamp(self) -> dt.datetime:
        return self._item.state_timestamp

    @property
    def document(self) -> J:
        return self._item.document

    def __repr__(self) -> str:
        return repr(self._item)

    def save(self, *, state: str | None = None, document: Json = None) -> None:
        """Save the state, the document or both, in the store and in this object. A value of None is left as it was.

        Raises LeaseLost, and writes nothing, if we no longer hold the item. Naming a state, even the current one, moves
        the item to the end of that state's queue.
        """
        self._loop.run(self._item.save(state=state, document=document))

    def __enter__(self) -> Self:
        self._loop.run(self._item.__aenter__())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.run(self._item.__aexit__(kind, error, trace))


#: Handles one item while this process holds it: a plain function, which runs on its own thread.
ItemHandler: TypeAlias = Callable[[Item], None]


class Processor:
    """Runs a handler for every item in one state, in `run`; made by `items.process(...)`.

    It handles at most `concurrency` items at once; only this process holds an item while its handler runs. What a
    handler saved counts, whatever happens to the handler later; what it did not save is not done. If a holder dies, a
    handler may run again for its item, so effects outside the store must be safe to repeat.
    """

    def __init__(self, loop: BackgroundLoop, processor: _processor.ItemProcessor) -> None:
        self._loop, self._processor = loop, processor

    def run(self) -> None:
        """Block until `stop()` or Ctrl-C, and finish the items in hand first. An outage of the store is waited out.

        Raises ConfigurationError when a retry cannot help, at first contact only: once a turn has succeeded, a missing
        table or right is logged and retried too.
        """
        try:
            self._loop.run(self._processor._run_shielded())
        except KeyboardInterrupt:
            self._processor.stop()
            self._loop.run(self._processor.stopped.wait())
            raise

    def stop(self) -> None:
        """Take no more items, finish those in hand within the shutdown timeout; then `run` returns.

        Callable on any thread.
        """
        self._processor.stop()

    @property
    def in_hand(self) -> int:
        return self._processor.in_hand


class Items:
    """The items of one kind: documents with a state, each with at most one holder; made by `store.items(...)`.

    A holder that has lost its lease cannot write the item. Every call is one statement, decided by the store's clock.
    `holder_id` is unique to this object unless it is given; two processes must never share one.
    """

    def __init__(self, loop: BackgroundLoop, items: _items.Items) -> None:
        self._loop, self._items = loop, items

    @property
    def kind(self) -> str:
        return self._items.kind

    @property
    def holder_id(self) -> str:
        return self._items.holder_id

    def put(self, id: str, *, state: str, document: Json) -> ItemView:
        """Store the item, new or in place of the old one, and return it.

        Raises AlreadyLeased, and writes nothing, while another holder has the item.
        """
        return self._loop.run(self._items.put(id, state=state, document=document))

    def get(self, id: str) -> ItemView | None:
        """Read the item as it is now, held or not, and return it; None if it does not exist."""
        return self._loop.run(self._items.get(id))

    def find(self, state: str | None = None, limit: int = 100) -> list[ItemView]:
        """Read items as they are now, held or not: all, or those in one state.

        The longest in their state come first.
        """
        return self._loop.run(self._items.find(state, limit))

    def acquire(self, id: str) -> Item:
        """Acquire the item and return it: from now on only this object may write it.

        Raises AlreadyLeased while another holder has it, NoSuchItem if it does not exist. If this holder has the item
        already, its earlier lease ends, unless code is inside its `with` block or its handler: then AlreadyLeased is
        raised too. Raises LeaseLost if the answer came so late that the lease is over.
        """
        return Item(self._loop, self._loop.run(self._items.acquire(id)))

    def next_for_state(self, state: str, limit: int = 20) -> list[Item]:
        """Acquire up to `limit` free items in this state, those longest in it first, and return them.

        An item that anybody holds, this holder included, is not among them. Enter each item with `with` soon: until
        then nobody renews its lease.
        """
        return [Item(self._loop, item) for item in self._loop.run(self._items.next_for_state(state, limit))]

    def renew(self, items: Item | Sequence[Item]) -> list[Item]:
        """Renew the leases for their full length from now. Returns the items still held; stop working on the others.

        This changes only the lease. An item whose local deadline has passed is lost without a request to the store.
        """
        given: list[Any] = [items] if isinstance(items, Item | ItemView) else list(items)
        held = self._loop.run(self._items.renew([_inner(item) for item in given]))
        return [item for item in given if _inner(item) in held]

    def break_lease(self, id: str | Item) -> None:
        """End the item's lease now, if it is ours. Does nothing if nobody holds the item.

        Raises AlreadyLeased while another holder has the item.
        """
        self._loop.run(self._items.break_lease(_inner(id)))

    def save(self, item: Item, *, state: str | None = None, document: Json = None) -> None:
        """Save the item's state or document, as `item.save(...)` does.

        Raises LeaseLost, and writes nothing, if we no longer hold the item.
        """
        self._loop.run(self._items.save(_inner(item), state=state, document=document))

    def delete(self, item: Item) -> None:
        """Delete the item and its lease for good. Raises LeaseLost, and deletes nothing, if we no longer hold the item.

        Raises Uncertain if no answer came. The lease is over in this process in that case too, because the item may be
        deleted, and somebody else may have put another item in its place.
        """
        self._loop.run(self._items.delete(_inner(item)))

    def process(self, state: str, handler: ItemHandler, **options: Unpack[ProcessOptions]) -> Processor:
        """Return a processor that runs `handler(item)` for every item in this state; call `run` to start it.

        Raises ConfigurationError for a wrong setting. Each item is under its lease while its handler runs. The handler
        is a plain function and runs on its own thread; it saves the item's next state itself. An item that is still in
        this state afterwards, or whose handler raised, is free for others at once; this processor skips it for a pause
        that grows with every failure.
        """

        check_handler(handler)

        def handle(item: _item.Item) -> Any:
            # Return it, although it should be None: so a missing await is detected.
            return handler(Item(self._loop, item))

        return Processor(self._loop, self._loop.call(self._items.process, state, handle, **options))


def _inner(given: Any) -> Any:
    return given._item if isinstance(given, Item) else given
