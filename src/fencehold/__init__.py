"""Leases on the database you already have, with the fence applied for you."""

from fencehold.connect import connect
from fencehold.model.durable import Durability
from fencehold.model.durations import Duration
from fencehold.model.election.election import LockState
from fencehold.model.election.retry import (
    DecorrelatedJitter,
    ExponentialBackoff,
    FixedInterval,
    RetryContext,
    RetryStrategy,
)
from fencehold.model.election.rules import Lease
from fencehold.model.election.settings import OnError
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
from fencehold.model.json_types import Json
from fencehold.model.outbox.rules import Status
from fencehold.ports.connections import Connection
from fencehold.ports.events import Claim, Event, EventRow, Filter, Recovered, Stats
from fencehold.ports.facts import FactSink
from fencehold.ports.fence import Cursor, Transaction
from fencehold.runtime.election.leader import Leader
from fencehold.runtime.election.term import Guard, Term
from fencehold.runtime.handlers.handlers import Reject
from fencehold.runtime.handlers.types import BatchHandler, EventHandler, ItemHandler
from fencehold.runtime.items.item import Item, ItemView
from fencehold.runtime.items.items import Items
from fencehold.runtime.items.processor import ItemProcessor
from fencehold.runtime.outbox.outbox import Outbox
from fencehold.runtime.outbox.reaper import Reaper
from fencehold.runtime.outbox.worker import Worker
from fencehold.runtime.store import Store
from fencehold.telemetry.fan_out import FanOut
from fencehold.telemetry.logs import LogSink

__version__ = "0.1.0"

__all__ = [
    "AlreadyLeased",
    "BatchHandler",
    "Claim",
    "ConfigurationError",
    "Connection",
    "Cursor",
    "DecorrelatedJitter",
    "Durability",
    "Duration",
    "Event",
    "EventHandler",
    "EventRow",
    "ExponentialBackoff",
    "FactSink",
    "FanOut",
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
    "LogSink",
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
