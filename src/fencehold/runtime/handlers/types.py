"""What a handler is, for type checkers: a function of one argument whose answer is nothing.

What a handler returns is not looked at: to return is done, to raise is to be tried again. So the types say None, and a
handler that returns False for "failed" is seen in an editor.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeAlias

from fencehold.ports.events import Claim
from fencehold.runtime.items.item import Item

#: Handles one event: `async def handle(event)`, or a plain function, which runs on a thread of its own.
EventHandler: TypeAlias = Callable[[Claim], Awaitable[None] | None]

#: Handles a list of events and answers for all of them: with `batch_size`.
BatchHandler: TypeAlias = Callable[[list[Claim]], Awaitable[None] | None]

#: Handles one item while this process holds it.
ItemHandler: TypeAlias = Callable[[Item], Awaitable[None] | None]

#: The same without an event loop: plain functions only.
SyncEventHandler: TypeAlias = Callable[[Claim], None]
SyncBatchHandler: TypeAlias = Callable[[list[Claim]], None]
