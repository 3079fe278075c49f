"""`outbox.add(tx=)` and `outbox.first_time(tx=)`: our writes in a caller's transaction, which commits both or none."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeAlias

from fencehold.backends.sql import wrong_store
from fencehold.backends.sql.callers.connections import CallersConnection, Params, Rows, Steps
from fencehold.backends.sql.callers.dialect import Dialect
from fencehold.backends.sql.callers.work import NOTHING_WRITTEN, CallersWrites, begin_hint
from fencehold.backends.sql.statements import Statements
from fencehold.model.errors import ConfigurationError
from fencehold.model.outbox.new_events import NewEvent

RunsOwn: TypeAlias = Callable[[str, Params, float], Awaitable[Sequence[Any]]]


class CallersOutbox(CallersWrites):
    """One outbox, on connections that callers give. A subclass for each database reads the statements' answers."""

    def __init__(self, dialect: Dialect, statements: Statements, run: RunsOwn | None) -> None:
        """`run` runs a statement on the outbox's own connection; it reads the id that tells this outbox from others.

        None: this database has no such id.
        """
        super().__init__(dialect, statements)
        self._run = run

    async def identity(self, limit_s: float) -> str:
        """Return the id that tells this outbox from one of the same name in another database; empty without a `run`."""
        if self._run is None:
            return ""
        return wrong_store.identity_of(await self._run("identity", {}, limit_s), self.statements.table)

    def add(self, target: object, events: Sequence[NewEvent], outbox_id: str) -> Awaitable[list[str]]:
        batch = self.batch(events, outbox_id)
        return self.perform(target, lambda connection: self._added(connection, batch))

    def first_time(self, tracking_id: str, consumer_id: str, target: object, outbox_id: str) -> Awaitable[bool]:
        params = {"tracking_id": tracking_id, "consumer": consumer_id, "outbox_id": outbox_id}
        return self.perform(target, lambda connection: self._first_time(connection, params))

    @abstractmethod
    def batch(self, events: Sequence[NewEvent], outbox_id: str) -> Sequence[Params]:
        """Return the parameters for the statement `add`: one set for each time that it must run."""

    def _added(self, connection: CallersConnection, batch: Sequence[Params]) -> Steps[list[str]]:
        return self.ids_added(connection, batch, (yield from self.written(connection, "add", batch)))

    def _first_time(self, connection: CallersConnection, params: Params) -> Steps[bool]:
        [rows] = yield from self.written(connection, "first_time", [params])
        return self.is_first(connection, rows)

    @abstractmethod
    def ids_added(self, connection: CallersConnection, batch: Sequence[Params], answers: Sequence[Rows]) -> list[str]:
        """Return the tracking ids of the events that were added; an event whose id was known already is left out.

        Raises ConfigurationError if the answers say that this is another outbox, or that no transaction is open.
        """

    @abstractmethod
    def is_first(self, connection: CallersConnection, rows: Rows) -> bool:
        """Return whether this consumer sees the event for the first time, from the rows of the statement `first_time`.

        Raises ConfigurationError if the rows say that this is another outbox, or that no transaction is open.
        """

    def outside(self, connection: CallersConnection, what_happened: str = NOTHING_WRITTEN) -> ConfigurationError:
        return ConfigurationError(
            "The connection given as tx is in autocommit and in no transaction: the event would be stored even if your "
            f"own change is not. {what_happened}",
            hint=begin_hint(connection, f"{self.dialect.begin}, or leave tx out."),
            code="add_outside_transaction",
        )

    def elsewhere(self, where: str = "") -> ConfigurationError:
        return wrong_store.of_outbox(self.statements.table, where)
