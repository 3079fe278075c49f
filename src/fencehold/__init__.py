"""Leases on the database you already have, with the fence applied for you."""

from fencehold.connect import connect
from fencehold.model.durations import Duration
from fencehold.model.election import LockState
from fencehold.model.errors import (
    AlreadyLeased,
    ConfigurationError,
    FenceholdError,
    LeaseLost,
    NoSuchItem,
    Unavailable,
    Uncertain,
    WorkerStuck,
)
from fencehold.model.events import Status
from fencehold.model.json_types import Json
from fencehold.model.leases import Lease
from fencehold.model.retry import (
    DecorrelatedJitter,
    ExponentialBackoff,
    FixedInterval,
    RetryContext,
    RetryStrategy,
)
from fencehold.model.settings import OnError
from fencehold.ports.connections import Connection
from fencehold.ports.events import Claim, Event, EventRow, Filter, Recovered, Stats
from fencehold.ports.fence import Cursor, Transaction
from fencehold.runtime.handler_types import BatchHandler, EventHandler, ItemHandler
from fencehold.runtime.handlers import Reject
from fencehold.runtime.item import Item, ItemView
from fencehold.runtime.item_processor import ItemProcessor
from fencehold.runtime.items import Items
from fencehold.runtime.leader import Leader
from fencehold.runtime.outbox import Outbox
from fencehold.runtime.reaper import Reaper
from fencehold.runtime.store import Store
from fencehold.runtime.term import Guard, Term
from fencehold.runtime.worker import Worker

__version__ = "0.1.0"

__all__ = [
    "AlreadyLeased",
    "BatchHandler",
    "Claim",
    "ConfigurationError",
    "Connection",
    "Cursor",
    "DecorrelatedJitter",
    "Duration",
    "Event",
    "EventHandler",
    "EventRow",
    "ExponentialBackoff",
    "FenceholdError",
    "Filter",
    "FixedInterval",
    "Guard",
    "Item",
    "ItemHandler",
    "ItemProcessor",
    "ItemView",
    "Items",
    "Json",
    "Leader",
    "Lease",
    "LeaseLost",
    "LockState",
    "NoSuchItem",
    "OnError",
    "Outbox",
    "Reaper",
    "Recovered",
    "Reject",
    "RetryContext",
    "RetryStrategy",
    "Stats",
    "Status",
    "Store",
    "Term",
    "Transaction",
    "Unavailable",
    "Uncertain",
    "Worker",
    "WorkerStuck",
    "connect",
]
