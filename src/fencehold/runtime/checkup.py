"""What can be asked of an open store about its own health; for `fencehold doctor`, and for programs that look ahead."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, TypeVar

from fencehold.model.errors import ConfigurationError
from fencehold.ports.backend import Backend, no_items, no_outbox
from fencehold.ports.checkup import Condition, TablesMade
from fencehold.ports.events import Events
from fencehold.ports.items import ItemStore
from fencehold.ports.schema import SchemaPort
from fencehold.runtime.context import ANY_KIND, ITEMS, StoreContext

LIMIT_S = 5.0

#: The key of the leases' answers; ITEMS is that of the items'. No outbox has a blank in its name.
LEASES = "the leases"

T = TypeVar("T")


class StoreCheckup:
    """Answers questions about an open store.

    They change nothing, and raise FenceholdError if the store does not answer.
    """

    def __init__(self, context: StoreContext) -> None:
        self._context = context

    async def try_write(self) -> str | None:
        """Acquire a lease and roll it back. Raises the error that keeps this process from writing.

        Returns None, or in words why no write was tried: not every store can roll one back.
        """
        return await self._on_keeper(lambda backend: backend.checkup.try_write(LIMIT_S))

    async def conditions(self) -> list[Condition]:
        """Settings that matter for leases, each with what was found."""
        return await self._on_keeper(lambda backend: backend.checkup.conditions(LIMIT_S))

    async def tables_made(self) -> TablesMade:
        """Report which outboxes exist, and whether items do.

        Raises ConfigurationError if this role may not read the record of what was made.
        """
        return await self._on_keeper(lambda backend: backend.checkup.tables_made(LIMIT_S))

    async def faults(self, outboxes: Sequence[str]) -> Mapping[str, ConfigurationError | None]:
        """Return, for the tables of leases, of items and of each outbox, why they cannot be used.

        That is an error with advice, or None if they can be used.
        """
        return await self._of_tables(outboxes, lambda tables: tables.fault(LIMIT_S), lambda error: error)

    async def missing(self, outboxes: Sequence[str]) -> Mapping[str, list[str]]:
        """What `init` would make of the tables of leases, of items and of each outbox, by name."""
        return await self._of_tables(outboxes, lambda tables: tables.missing(LIMIT_S), lambda _: [])

    async def rights_missing(self, outboxes: Sequence[str]) -> Mapping[str, list[str]]:
        """What this role lacks on the tables of leases, of items and of each outbox."""
        return await self._of_tables(outboxes, lambda tables: tables.rights_missing(LIMIT_S), lambda _: [])

    async def _of_tables(
        self,
        outboxes: Sequence[str],
        ask: Callable[[SchemaPort], Coroutine[Any, Any, T]],
        without: Callable[[ConfigurationError], T],
    ) -> dict[str, T]:
        """Ask the tables of leases, of items and of each outbox.

        `without` gives the answer for tables that this kind of database cannot have at all.
        """

        async def asked(backend: Backend) -> dict[str, T]:
            answers = {LEASES: await ask(backend.schema)}
            if backend.items is None:
                answers[ITEMS] = without(no_items(backend))
            else:
                answers[ITEMS] = await of(backend.items(ANY_KIND))  # all kinds share their tables
            for name in outboxes:
                events = backend.events
                answers[name] = without(no_outbox(backend)) if events is None else await of(events(name))
            return answers

        async def of(tables: Events | ItemStore) -> T:
            try:
                return await ask(tables.schema)
            finally:
                await tables.close()

        return await self._on_keeper(asked)

    async def _on_keeper(self, ask: Callable[[Backend], Coroutine[Any, Any, T]]) -> T:
        return await self._context.keeper_loop.begin(ask(self._context.keeper.backend))
