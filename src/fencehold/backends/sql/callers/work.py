"""Work in a transaction that a caller owns: finds out what was given, and runs the steps on it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Sequence
from typing import Any, TypeVar

from fencehold.backends.sql.callers.alchemy import alchemy
from fencehold.backends.sql.callers.connections import CallersConnection, Params, Rows, Steps, StepsOn
from fencehold.backends.sql.callers.dialect import Dialect
from fencehold.backends.sql.callers.kinds import begin_on, kind_of, unwrapped
from fencehold.backends.sql.statements import Statements
from fencehold.model.errors import ConfigurationError

T = TypeVar("T")

NOTHING_WRITTEN = "Nothing was written."


class CallersWork(ABC):
    """One kind of work, on one set of tables. A subclass has its steps, and its errors in its own words."""

    def __init__(self, dialect: Dialect, statements: Statements) -> None:
        self.dialect, self.statements = dialect, statements

    def perform(self, given: object, steps_on: StepsOn[T]) -> Awaitable[T]:
        """Run a step on what the caller gave: on a sync connection at once, on an async one when it is awaited."""
        connection = self.connection(given)
        self.check(connection)
        return connection.perform(steps_on)

    def connection(self, given: Any) -> CallersConnection:
        """Return what the caller gave as one of our kinds of connection.

        Raises ConfigurationError (bad_connection) for what is no connection to this kind of database.
        """
        target = unwrapped(given)
        found = self.dialect.own(target, self.statements, given)
        found = found or alchemy(target, self.dialect.name, self.statements, given)
        if found is None:
            raise self.bad_connection(target)
        return found

    def check(self, connection: CallersConnection) -> None:
        """Raise what is wrong at first sight. For an async connection this is before the await."""
        if connection.is_idle:
            raise self.outside(connection)

    @abstractmethod
    def bad_connection(self, target: object) -> ConfigurationError:
        """Return the error for what is no connection to this kind of database."""

    @abstractmethod
    def outside(self, connection: CallersConnection) -> ConfigurationError:
        """Return the error for a connection that is in no transaction."""


class CallersWrites(CallersWork):
    """Writes of our own that commit or fail with the caller's. A subclass says what they are about."""

    def written(self, connection: CallersConnection, name: str, batch: Sequence[Params]) -> Steps[list[Rows]]:
        """Run the statement for each of the batch and return the rows of each; the database's errors become ours."""
        try:
            return (yield from self.dialect.write(connection, name, batch, self))
        except Exception as error:
            if self.dialect.is_elsewhere(error):
                raise self.elsewhere() from error
            fault = error if connection.keeps_errors else self.dialect.fault(error, self.statements)
            if fault is error:
                raise
            raise fault from error

    def check(self, connection: CallersConnection) -> None:
        if connection.is_closed:
            raise ConfigurationError(
                "The connection given as tx is closed; nothing was written.", code="bad_connection"
            )
        super().check(connection)

    def bad_connection(self, target: object) -> ConfigurationError:
        return ConfigurationError(
            f"tx cannot be a {kind_of(target)}; nothing was written.",
            hint=f"{self.dialect.takes}{self.dialect.takes_as_tx}",
            code="bad_connection",
        )

    @abstractmethod
    def outside(self, connection: CallersConnection, what_happened: str = NOTHING_WRITTEN) -> ConfigurationError:
        """Return the error for a connection that is in no transaction. `what_happened`: to what was to be written."""

    @abstractmethod
    def elsewhere(self, where: str = "") -> ConfigurationError:
        """Return the error for a connection to another database; `where` names both, where databases are files."""


def begin_hint(connection: CallersConnection, plain: str) -> str:
    """Return how to begin a transaction on what the caller gave; `plain` says it for a driver's own connection."""
    return begin_on(connection.given) or plain
