"""Leases on the database you already have, with the fence applied for you."""

from fencehold.connect import connect
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
from fencehold.model.leases import Lease
from fencehold.model.retry import (
    DecorrelatedJitter,
    ExponentialBackoff,
    FixedInterval,
    RetryContext,
    RetryStrategy,
)
from fencehold.ports.events import Claim, Event, EventRow, Filter, Recovered, Stats
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
    "Claim",
    "ConfigurationError",
    "DecorrelatedJitter",
    "Event",
    "EventRow",
    "ExponentialBackoff",
    "FenceholdError",
    "Filter",
    "FixedInterval",
    "Guard",
    "Item",
    "ItemProcessor",
    "ItemView",
    "Items",
    "Leader",
    "Lease",
    "LeaseLost",
    "LockState",
    "NoSuchItem",
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
    "Unavailable",
    "Uncertain",
    "Worker",
    "WorkerStuck",
    "connect",
]
