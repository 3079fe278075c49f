"""`outbox.add(tx=)` and `outbox.first_time(tx=)`: written with the caller's change, or not at all."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Awaitable, Sequence

from fencehold.backends.sql import wrong_store
from fencehold.backends.sql.callers.connections import CallersConnection, Params, Rows, Steps
from fencehold.backends.sql.callers.work import NOTHING_WRITTEN, CallersWrites, begin_hint
from fencehold.model.errors import ConfigurationError


class CallersOutbox(CallersWrites):
    """One outbox of one database, on connections of the callers'. A backend says how it answers."""

    def add_in(self, given: object, batch: Sequence[Params]) -> Awaitable[list[str]]:
        """Run `add` for each of the batch. Returns the tracking ids of the events that were not known yet."""
        return self.perform(given, lambda connection: self._added(connection, batch))

    def first_time(self, given: object, params: Params) -> Awaitable[bool]:
        return self.perform(given, lambda connection: self._first_time(connection, params))

    def _added(self, connection: CallersConnection, batch: Sequence[Params]) -> Steps[list[str]]:
        return self.ids_added(connection, batch, (yield from self.written(connection, "add", batch)))

    def _first_time(self, connection: CallersConnection, params: Params) -> Steps[bool]:
        [rows] = yield from self.written(connection, "first_time", [params])
        return self.is_first(connection, rows)

    @abstractmethod
    def ids_added(self, connection: CallersConnection, batch: Sequence[Params], answers: Sequence[Rows]) -> list[str]:
        """Raises ConfigurationError if the answers say that this is another outbox, or no transaction."""

    @abstractmethod
    def is_first(self, connection: CallersConnection, rows: Rows) -> bool:
        """The same for `first_time`."""

    def outside(self, connection: CallersConnection, what_happened: str = NOTHING_WRITTEN) -> ConfigurationError:
        return ConfigurationError(
            "The connection given as tx is in autocommit and in no transaction: the event would be stored even if your "
            f"own change is not. {what_happened}",
            hint=begin_hint(connection, f"{self.dialect.begin}, or leave tx out."),
            code="add_outside_transaction",
        )

    def elsewhere(self, where: str = "") -> ConfigurationError:
        return wrong_store.of_outbox(self.statements.table, where)
