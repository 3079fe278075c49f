"""Items for programs without an event loop: calls that block, `with item:`, handlers that are plain functions.

What cannot be had without an event loop: a body cannot be cancelled when its lease is lost, and a hung program is not
noticed. So ask `item.is_valid` (or `item.check()`) often; what is saved too late is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar

from fencehold.runtime import item as _item
from fencehold.runtime import item_processor as _processor
from fencehold.runtime import items as _items
from fencehold.runtime.item import ItemView
from fencehold.runtime.item_processor import check_handler

T = TypeVar("T")


class Loop(Protocol):
    def run(self, work: Coroutine[Any, Any, T]) -> T: ...


class Item:
    """`with item:` keeps the lease while the body runs and breaks it on every way out; LeaseLost if it was lost."""

    def __init__(self, loop: Loop, item: _item.Item) -> None:
        self._loop, self._item = loop, item

    def __getattr__(self, name: str) -> Any:
        """id, kind, state, state_timestamp, document, token, expires_at, holder_id, is_valid, check(), ...: as is."""
        return getattr(self._item, name)

    def __repr__(self) -> str:
        return repr(self._item)

    def save(self, *, state: str | None = None, document: Any = None) -> None:
        self._loop.run(self._item.save(state=state, document=document))

    def __enter__(self) -> Self:
        self._loop.run(self._item.__aenter__())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.run(self._item.__aexit__(kind, error, trace))


class Processor:
    """`run` blocks until `stop()` or Ctrl-C, which finishes what is in hand first."""

    def __init__(self, loop: Loop, processor: _processor.ItemProcessor) -> None:
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

    def __init__(self, loop: Loop, items: _items.Items) -> None:
        self._loop, self._items = loop, items

    @property
    def kind(self) -> str:
        return self._items.kind

    @property
    def holder_id(self) -> str:
        return self._items.holder_id

    def put(self, id: str, *, state: str, document: Any) -> ItemView:
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

    def save(self, item: Item, *, state: str | None = None, document: Any = None) -> None:
        self._loop.run(self._items.save(_inner(item), state=state, document=document))

    def delete(self, item: Item) -> None:
        self._loop.run(self._items.delete(_inner(item)))

    def process(self, state: str, handler: Callable[[Item], Any], **options: Any) -> Processor:
        """Takes the settings of the async `items.process`; the handler is a plain function, on a thread of its own."""

        check_handler(handler)

        def handle(item: _item.Item) -> Any:
            return handler(Item(self._loop, item))

        async def make() -> _processor.ItemProcessor:
            return self._items.process(state, handle, **options)

        return Processor(self._loop, self._loop.run(make()))


def _inner(given: Any) -> Any:
    return given._item if isinstance(given, Item) else given
