"""The classes of fencehold for programs without an event loop: `with` instead of `async with`, and calls that block.

Background threads renew the lease. Two things are not possible without an event loop: a body is not cancelled when its
term ends, and a program that hangs is not detected. So check `term.is_valid` (or call `term.check()`) often, and write
through the fence, which refuses a write that comes too late.
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
