"""Types of handlers, for type checkers: functions of one argument that return None.

A returned value is not used: a handler that returns has succeeded, one that raises is tried again. So the types
demand None, and a type checker finds a handler that returns False for "failed".
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeAlias

from fencehold.ports.events import Claim
from fencehold.runtime.items.item import Item

#: Handles one event: `async def handle(event)`, or a plain function, which runs on a thread of its own.
EventHandler: TypeAlias = Callable[[Claim], Awaitable[None] | None]

#: Handles a list of events, with `batch_size`; its success or error counts for all of them.
BatchHandler: TypeAlias = Callable[[list[Claim]], Awaitable[None] | None]

#: Handles one item while this process holds it.
ItemHandler: TypeAlias = Callable[[Item], Awaitable[None] | None]

#: The handlers of events in fencehold.sync: plain functions only.
SyncEventHandler: TypeAlias = Callable[[Claim], None]
SyncBatchHandler: TypeAlias = Callable[[list[Claim]], None]
