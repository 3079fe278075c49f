"""What the steps must know of one kind of database. Each backend supplies one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar, Protocol

from fencehold.backends.sql.callers.connections import NO_PARAMS, CallersConnection, End, Params, Rows, Run, Steps
from fencehold.backends.sql.statements import Statements
from fencehold.model.errors import ConfigurationError


class Refusals(Protocol):
    """The errors of one kind of work (a fence, or writes of an outbox), each with its own words."""

    def bad_connection(self, target: object) -> ConfigurationError: ...

    def outside(self, connection: CallersConnection, what_happened: str = ..., /) -> ConfigurationError: ...

    def elsewhere(self, where: str, /) -> ConfigurationError: ...


class Dialect(ABC):
    """What the steps need of one kind of database.

    `write` runs our writes in the caller's transaction. A fence asks with `run`, and `poison` follows its refusal.
    """

    name: ClassVar[str]  # as SQLAlchemy spells it
    takes: ClassVar[str]  # the beginning of a hint: which connections to give
    takes_as_tx: ClassVar[str]  # its end for `tx`
    begin: ClassVar[str]  # the beginning of a hint: how to begin a transaction on the driver's own connection
    refused: ClassVar[str]  # what has happened to a transaction after `poison`

    @abstractmethod
    def own(self, target: object, statements: Statements, given: object) -> CallersConnection | None:
        """Return the connection of a driver for this database wrapped; None if it is of no such driver."""

    def run(self, connection: CallersConnection, name: str, params: Params = NO_PARAMS) -> Steps[Rows]:
        """Return the rows of a statement, after the checks that this database needs."""
        return (yield Run(name, params))

    def poison(self, connection: CallersConnection) -> Steps[None]:
        """Make the whole transaction unable to commit, with every savepoint in it.

        Here: undo it. If a savepoint of SQLAlchemy's is open, end the connection instead, so that nothing can follow.
        """
        yield End.CLOSE if connection.in_savepoint else End.ROLL_BACK

    def write(
        self, connection: CallersConnection, name: str, batch: Sequence[Params], refusals: Refusals
    ) -> Steps[list[Rows]]:
        """Run the statement for each of the batch and return the rows of each.

        Raises an error of `refusals` where the statement itself cannot know that it is outside of a transaction, or in
        another database.
        """
        answers: list[Rows] = []
        for params in batch:
            rows = yield from self.run(connection, name, params)
            answers.append(rows)
        return answers

    @abstractmethod
    def is_elsewhere(self, error: Exception) -> bool:
        """Whether the error of a write means that our tables are not there: it is another database."""

    @abstractmethod
    def fault(self, error: Exception, statements: Statements) -> BaseException:
        """Return our error for a driver's error of a write, also inside SQLAlchemy's; any other error unchanged."""
