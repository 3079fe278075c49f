"""Leases on the database you already have, with the fence applied for you."""

from fencehold.connect import connect
from fencehold.model.election import LockState
from fencehold.model.errors import (
    AlreadyLeased,
    ConfigurationError,
    FenceholdError,
    LeaseLost,
    Unavailable,
    Uncertain,
)
from fencehold.model.leases import Lease
from fencehold.model.retry import (
    DecorrelatedJitter,
    ExponentialBackoff,
    FixedInterval,
    RetryContext,
    RetryStrategy,
)
from fencehold.runtime.leader import Leader
from fencehold.runtime.store import Store
from fencehold.runtime.term import Guard, Term

__version__ = "0.1.0"

__all__ = [
    "AlreadyLeased",
    "ConfigurationError",
    "DecorrelatedJitter",
    "ExponentialBackoff",
    "FenceholdError",
    "FixedInterval",
    "Guard",
    "Leader",
    "Lease",
    "LeaseLost",
    "LockState",
    "RetryContext",
    "RetryStrategy",
    "Store",
    "Term",
    "Unavailable",
    "Uncertain",
    "connect",
]
