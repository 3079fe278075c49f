"""Items for programs without an event loop: calls that block, `with item:`, handlers that are plain functions.

What cannot be had without an event loop: a body cannot be cancelled when its lease is lost, and a hung program is not
noticed. So ask `item.is_valid` (or `item.check()`) often; what is saved too late is refused.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Self, TypeAlias, TypeVar, Unpack

from fencehold.model.json_types import J, Json
from fencehold.runtime.core.block_kinds import PlainBlock
from fencehold.runtime.items import item as _item
from fencehold.runtime.items import items as _items
from fencehold.runtime.items import processor as _processor
from fencehold.runtime.items.item import ItemView
from fencehold.runtime.items.processor import check_handler
from fencehold.runtime.options import ProcessOptions
from fencehold.sync.background_loop import BackgroundLoop

T = TypeVar("T")


class Item(PlainBlock, Generic[J]):
    """`with item:` keeps the lease while the body runs and breaks it on every way out; LeaseLost if it was lost."""

    def __init__(self, loop: BackgroundLoop, item: _item.Item[J]) -> None:
        self._loop, self._item = loop, item

    if not TYPE_CHECKING:  # a type checker would take every misspelt name for one of these

        def __getattr__(self, name: str) -> Any:
            """What else the async item has, as it is."""
            return getattr(self._item, name)

    @property
    def id(self) -> str:
        return self._item.id

    @property
    def kind(self) -> str:
        return self._item.kind

    @property
    def state(self) -> str:
        return self._item.state

    @property
    def state_timestamp(self) -> dt.datetime:
        return self._item.state_timestamp

    @property
    def document(self) -> J:
        return self._item.document

    @property
    def holder_id(self) -> str:
        return self._item.holder_id

    @property
    def token(self) -> int:
        """The fencing token: higher than that of every earlier lease on this item."""
        return self._item.token

    @property
    def expires_at(self) -> dt.datetime:
        """In store time, as of the last renewal."""
        return self._item.expires_at

    @property
    def is_valid(self) -> bool:
        return self._item.is_valid

    @property
    def remaining_s(self) -> float:
        """Seconds until the local deadline, if no renewal came any more."""
        return self._item.remaining_s

    @property
    def ended_because(self) -> str | None:
        return self._item.ended_because

    def check(self) -> None:
        """Raise LeaseLost unless the lease is valid at this instant."""
        self._item.check()

    def __repr__(self) -> str:
        return repr(self._item)

    def save(self, *, state: str | None = None, document: Json = None) -> None:
        self._loop.run(self._item.save(state=state, document=document))

    def __enter__(self) -> Self:
        self._loop.run(self._item.__aenter__())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.run(self._item.__aexit__(kind, error, trace))


#: Handles one item while this process holds it: a plain function, on a thread of its own.
ItemHandler: TypeAlias = Callable[[Item], None]


class Processor:
    """`run` blocks until `stop()` or Ctrl-C, which finishes what is in hand first."""

    def __init__(self, loop: BackgroundLoop, processor: _processor.ItemProcessor) -> None:
        self._loop, self._processor = loop, processor

    def run(self) -> None:
        try:
            self._loop.run(self._processor.run_shielded())
        except KeyboardInterrupt:
            self._processor.stop()
            self._loop.run(self._processor.wait_stopped())
            raise

    def stop(self) -> None:
        self._processor.stop()

    @property
    def in_hand(self) -> int:
        return self._processor.in_hand


class Items:
    """`store.items(...)` without an event loop."""

    def __init__(self, loop: BackgroundLoop, items: _items.Items) -> None:
        self._loop, self._items = loop, items

    @property
    def kind(self) -> str:
        return self._items.kind

    @property
    def holder_id(self) -> str:
        return self._items.holder_id

    def put(self, id: str, *, state: str, document: Json) -> ItemView:
        return self._loop.run(self._items.put(id, state=state, document=document))

    def get(self, id: str) -> ItemView | None:
        return self._loop.run(self._items.get(id))

    def find(self, state: str | None = None, limit: int = 100) -> list[ItemView]:
        return self._loop.run(self._items.find(state, limit))

    def acquire(self, id: str) -> Item:
        return Item(self._loop, self._loop.run(self._items.acquire(id)))

    def next_for_state(self, state: str, limit: int = 20) -> list[Item]:
        return [Item(self._loop, item) for item in self._loop.run(self._items.next_for_state(state, limit))]

    def renew(self, items: Item | Sequence[Item]) -> list[Item]:
        given: list[Any] = [items] if isinstance(items, Item | ItemView) else list(items)
        held = self._loop.run(self._items.renew([_inner(item) for item in given]))
        return [item for item in given if _inner(item) in held]

    def break_lease(self, id: str | Item) -> None:
        self._loop.run(self._items.break_lease(_inner(id)))

    def save(self, item: Item, *, state: str | None = None, document: Json = None) -> None:
        self._loop.run(self._items.save(_inner(item), state=state, document=document))

    def delete(self, item: Item) -> None:
        self._loop.run(self._items.delete(_inner(item)))

    def process(self, state: str, handler: ItemHandler, **options: Unpack[ProcessOptions]) -> Processor:
        """Takes the settings of the async `items.process`; the handler is a plain function, on a thread of its own."""

        check_handler(handler)

        def handle(item: _item.Item) -> Any:
            # Returned, although it should be None: what is not awaited is found out by it.
            return handler(Item(self._loop, item))

        async def make() -> _processor.ItemProcessor:
            return self._items.process(state, handle, **options)

        return Processor(self._loop, self._loop.run(make()))


def _inner(given: Any) -> Any:
    return given._item if isinstance(given, Item) else given
