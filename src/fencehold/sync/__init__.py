"""The same nouns for programs without an event loop: `with` instead of `async with`, calls that block.

The lease is kept on background threads. What cannot be had without an event loop: a body cannot be cancelled when its
term ends, and a hung program is not noticed. So ask `term.is_valid` (or `term.check()`) often, and write through the
fence, which refuses whatever comes too late.
"""

from fencehold.ports.connections import SyncConnection as Connection
from fencehold.ports.fence import SyncCursor as Cursor
from fencehold.ports.fence import SyncTransaction as Transaction
from fencehold.runtime.handlers.types import SyncBatchHandler as BatchHandler
from fencehold.runtime.handlers.types import SyncEventHandler as EventHandler
from fencehold.sync.items import Item, ItemHandler, Items, Processor
from fencehold.sync.leader import Leader, Term
from fencehold.sync.lease_verbs import Leases
from fencehold.sync.outbox import Outbox, Worker
from fencehold.sync.store import Store, connect

__all__ = [
    "BatchHandler",
    "Connection",
    "Cursor",
    "EventHandler",
    "Item",
    "ItemHandler",
    "Items",
    "Leader",
    "Leases",
    "Outbox",
    "Processor",
    "Store",
    "Term",
    "Transaction",
    "Worker",
    "connect",
]
