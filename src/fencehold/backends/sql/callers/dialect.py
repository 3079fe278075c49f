"""What our work in callers' transactions must know of one kind of database. Each backend supplies one Dialect.

The work is written as steps: generators without I/O, which yield what they ask of the connection (connections.py).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar, Protocol

from fencehold.backends.sql.callers.connections import NO_PARAMS, CallersConnection, End, Params, Rows, Run, Steps
from fencehold.backends.sql.statements import Statements
from fencehold.model.errors import ConfigurationError


class Refusals(Protocol):
    """The errors with which one kind of work (a fence, or writes of an outbox) refuses a connection."""

    def bad_connection(self, target: object) -> ConfigurationError: ...

    def outside(self, connection: CallersConnection, what_happened: str = ..., /) -> ConfigurationError: ...

    def elsewhere(self, where: str, /) -> ConfigurationError: ...


class Dialect(ABC):
    """One kind of database, as our work in callers' transactions uses it.

    A write runs through `write`. A fence asks through `run`; if the fence is refused, `poison` makes the transaction
    unable to commit.
    """

    name: ClassVar[str]  # as SQLAlchemy spells it
    takes: ClassVar[str]  # the beginning of a hint: which connections to give
    takes_as_tx: ClassVar[str]  # its end for `tx`
    begin: ClassVar[str]  # the beginning of a hint: how to begin a transaction on the driver's own connection
    refused: ClassVar[str]  # what has happened to a transaction after `poison`

    @abstractmethod
    def own(self, target: object, statements: Statements, given: object) -> CallersConnection | None:
        """Return `target` as one of our kinds of connection, if it is of a driver for this database; else None.

        `given`: the object that the caller gave, which may contain `target`.
        """

    def run(self, connection: CallersConnection, name: str, params: Params = NO_PARAMS) -> Steps[Rows]:
        """Return the rows of the statement `name`.

        A subclass first checks the connection, where its database needs that.
        """
        return (yield Run(name, params))

    def poison(self, connection: CallersConnection) -> Steps[None]:
        """Make the caller's whole transaction unable to commit, with every savepoint in it.

        Unless a subclass does otherwise, the transaction is rolled back. If a savepoint of SQLAlchemy's is open, the
        connection is ended instead, so that nothing can follow.
        """
        yield End.CLOSE if connection.in_savepoint else End.ROLL_BACK

    def write(
        self, connection: CallersConnection, name: str, batch: Sequence[Params], refusals: Refusals
    ) -> Steps[list[Rows]]:
        """Run the statement `name` once for each set of parameters in `batch`; return the rows of each run.

        A subclass raises an error of `refusals` where the statement itself cannot find out that no transaction is open,
        or that this is another database.
        """
        answers: list[Rows] = []
        for params in batch:
            rows = yield from self.run(connection, name, params)
            answers.append(rows)
        return answers

    @abstractmethod
    def is_elsewhere(self, error: Exception) -> bool:
        """Whether a write's error says that our tables are missing: the connection leads to another database."""

    @abstractmethod
    def fault(self, error: Exception, statements: Statements) -> BaseException:
        """Return our error for an error of this driver, also if SQLAlchemy wraps it; any other error unchanged."""
