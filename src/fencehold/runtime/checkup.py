"""Questions about the health of an open store, for `fencehold doctor` and for programs that check before they start."""

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
    """Answers questions about the health of an open store.

    The questions change nothing in the database. Every method raises FenceholdError if the store does not answer.
    """

    def __init__(self, context: StoreContext) -> None:
        self._context = context

    async def try_write(self) -> str | None:
        """Acquire a lease and roll that back, as a test. Raises the error that keeps this process from writing.

        Returns None if the write worked. Returns a sentence that says why none was tried if this kind of store cannot
        roll a write back.
        """
        return await self._on_keeper(lambda backend: backend.checkup.try_write(LIMIT_S))

    async def conditions(self) -> list[Condition]:
        """Return the settings of the database that matter for leases, each with the value that was found."""
        return await self._on_keeper(lambda backend: backend.checkup.conditions(LIMIT_S))

    async def tables_made(self) -> TablesMade:
        """Report which outboxes exist, and whether items do.

        Raises ConfigurationError if this role may not read the record of what was made.
        """
        return await self._on_keeper(lambda backend: backend.checkup.tables_made(LIMIT_S))

    async def faults(self, outboxes: Sequence[str]) -> Mapping[str, ConfigurationError | None]:
        """Return why tables cannot be used: for those of the leases, of the items and of each outbox.

        The keys are LEASES, ITEMS and the outboxes' names. The value is an error with advice, or None if the tables can
        be used.
        """
        return await self._of_tables(outboxes, lambda tables: tables.fault(LIMIT_S), lambda error: error)

    async def missing(self, outboxes: Sequence[str]) -> Mapping[str, list[str]]:
        """Return the names of what `init` would make, for the tables of the leases, of the items and of each outbox.

        The keys are LEASES, ITEMS and the outboxes' names. A list is empty if nothing is missing.
        """
        return await self._of_tables(outboxes, lambda tables: tables.missing(LIMIT_S), lambda _: [])

    async def rights_missing(self, outboxes: Sequence[str]) -> Mapping[str, list[str]]:
        """Return the rights that this database user lacks on the tables of the leases, of the items and of each outbox.

        The keys are LEASES, ITEMS and the outboxes' names. A list is empty if no right is missing.
        """
        return await self._of_tables(outboxes, lambda tables: tables.rights_missing(LIMIT_S), lambda _: [])

    async def _of_tables(
        self,
        outboxes: Sequence[str],
        ask: Callable[[SchemaPort], Coroutine[Any, Any, T]],
        without: Callable[[ConfigurationError], T],
    ) -> dict[str, T]:
        """Call `ask` for the tables of the leases, of the items and of each outbox; return the answers by these names.

        `without` returns the answer for tables that this kind of database cannot have at all.
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
