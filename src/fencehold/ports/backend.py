"""A connected database, as the runtime sees it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from fencehold.model.errors import ConfigurationError
from fencehold.ports.checkup import CheckupPort
from fencehold.ports.events import Events
from fencehold.ports.fence import FencePort
from fencehold.ports.items import ItemStore
from fencehold.ports.leases import LeasePort
from fencehold.ports.schema import SchemaPort
from fencehold.ports.wakeup import WakeupPort


class Backend(Protocol):
    """One connected database: its leases, fence, tables, checks and, if it has them, outboxes and items.

    `open`, `close` and all verbs except those of the fence run on the keeper's event loop: the loop, on a thread of its
    own, that renews the leases. Every backend has leases. `events` is None if it has no outbox, `items` if it has no
    items.
    """

    @property
    def name(self) -> str:
        """Return what messages call this kind of database, such as "Cosmos DB"."""
        ...

    @property
    def leases(self) -> LeasePort: ...

    @property
    def schema(self) -> SchemaPort: ...

    @property
    def wakeup(self) -> WakeupPort: ...

    @property
    def fences(self) -> FencePort: ...

    @property
    def checkup(self) -> CheckupPort: ...

    @property
    def events(self) -> Callable[[str], Events] | None:
        """Return a function that makes the outbox of a table, for one event loop; None if this backend has no outboxes.

        Each outbox has a connection of its own, opened when first needed.
        """
        ...

    @property
    def items(self) -> Callable[[str], ItemStore] | None:
        """Return a function that makes the items of a kind, for one event loop; None if this backend has no items.

        The items of each kind have a connection of their own, opened when first needed.
        """
        ...

    async def open(self, limit_s: float) -> None: ...

    async def close(self) -> None: ...


def events_of(backend: Backend, table: str) -> Events:
    """Return the outbox of this table. Raises ConfigurationError (no_outbox) if the backend has no outboxes."""
    if backend.events is None:
        raise no_outbox(backend)
    return backend.events(table)


def items_of(backend: Backend, kind: str) -> ItemStore:
    """Return the items of this kind. Raises ConfigurationError (no_items) if the backend has no items."""
    if backend.items is None:
        raise no_items(backend)
    return backend.items(kind)


def no_outbox(backend: Backend) -> ConfigurationError:
    return ConfigurationError(
        f"There is no outbox on {backend.name}: an event could not be added in the transaction of your own writes.",
        hint="Keep the outbox in the SQL database that those writes go to.",
        code="no_outbox",
    )


def no_items(backend: Backend) -> ConfigurationError:
    return ConfigurationError(
        f"There are no items on {backend.name}, only leases.",
        hint="Keep the items in a SQL database, or in Cosmos DB: fencehold.connect(...) with its URL.",
        code="no_items",
    )
