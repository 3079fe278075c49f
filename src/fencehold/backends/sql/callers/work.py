"""Work of ours in a transaction that a caller owns: recognizes the connection, and runs our steps on it."""

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
    """One kind of work on one set of tables: a fence, or the writes of an outbox.

    A subclass has the steps, which are generators without I/O (connections.py), and the texts of the errors.
    """

    def __init__(self, dialect: Dialect, statements: Statements) -> None:
        self.dialect, self.statements = dialect, statements

    def perform(self, given: object, steps_on: StepsOn[T]) -> Awaitable[T]:
        """Run a step on the connection that the caller gave, and return an awaitable with its result.

        On a sync connection the step has run when this returns; on an async one it runs when the result is awaited.
        Raises ConfigurationError at once for an object that is no connection, or if no transaction can be open.
        """
        connection = self.connection(given)
        self.check(connection)
        return connection.perform(steps_on)

    def connection(self, given: Any) -> CallersConnection:
        """Return what the caller gave as one of our kinds of connection.

        Raises ConfigurationError (bad_connection) if it is no connection to this kind of database.
        """
        target = unwrapped(given)
        found = self.dialect.own(target, self.statements, given)
        found = found or alchemy(target, self.dialect.name, self.statements, given)
        if found is None:
            raise self.bad_connection(target)
        return found

    def check(self, connection: CallersConnection) -> None:
        """Raise ConfigurationError if the connection cannot be used, as far as is known without asking the database."""
        if connection.is_idle:
            raise self.outside(connection)

    @abstractmethod
    def bad_connection(self, target: object) -> ConfigurationError:
        """Return the error for an object that is no connection to this kind of database."""

    @abstractmethod
    def outside(self, connection: CallersConnection) -> ConfigurationError:
        """Return the error for a connection that is in no transaction."""


class CallersWrites(CallersWork):
    """Writes of ours that commit, or are rolled back, with the caller's transaction."""

    def written(self, connection: CallersConnection, name: str, batch: Sequence[Params]) -> Steps[list[Rows]]:
        """Run the statement `name` once for each set of parameters in `batch`; return the rows of each run.

        Raises our error for an error of the database; an error of a driver that is not ours stays unchanged.
        """
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
        """Return the error for a connection on which no transaction is open.

        `what_happened`: a sentence that says what happened to the rows that were to be written.
        """

    @abstractmethod
    def elsewhere(self, where: str = "") -> ConfigurationError:
        """Return the error for a connection to another database than the outbox's.

        `where` names the two files, on a database that is a file.
        """


def begin_hint(connection: CallersConnection, plain: str) -> str:
    """Return a hint how to begin a transaction on what the caller gave.

    `plain` is the hint for a driver's own connection, without a library around it.
    """
    return begin_on(connection.given) or plain
