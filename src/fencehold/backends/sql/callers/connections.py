"""The kinds of connection that callers give, and what a step may ask of them.

A step is a generator without I/O: it yields a request (`Run` or `End`) and gets the rows back. So a step is written
once: a sync connection runs it at once, an async connection with `await`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Generator, Mapping
from enum import Enum, auto
from typing import Any, NamedTuple, TypeAlias, TypeVar

from fencehold.backends.sql.statements import Statements
from fencehold.ports.fence import Ready

T = TypeVar("T")

Rows: TypeAlias = list[tuple[Any, ...]]
Params: TypeAlias = Mapping[str, Any]

NO_PARAMS: Params = {}


class Run(NamedTuple):
    """The request for the rows of a statement, which is named by its file."""

    name: str
    params: Params = NO_PARAMS


class End(Enum):
    """The request to end the caller's transaction; the answer has no rows."""

    ROLL_BACK = auto()
    #: End the connection: nothing more can be written on it, and nothing committed.
    CLOSE = auto()


Ask: TypeAlias = Run | End
#: A step, running. An error of what it asked for is raised at its `yield`.
Steps: TypeAlias = Generator[Ask, Rows, T]


class CallersConnection(ABC):
    """A connection that a caller gave; a subclass for each kind of library.

    The properties never ask the database. The values here are for libraries that do not show more; a subclass overrides
    those that its library shows.
    """

    #: Whether the driver's errors reach the caller unchanged: its driver is not one of ours.
    keeps_errors = False

    def __init__(self, target: Any, statements: Statements, given: object = None) -> None:
        """`target`: the connection that runs statements. `given`: what the caller gave, if `target` was inside it."""
        self.target, self.statements = target, statements
        self.given = target if given is None else given

    @property
    def driver(self) -> Any:
        """The connection of the driver itself, also where a library wraps it."""
        return self.target

    @property
    def is_closed(self) -> bool:
        return False

    @property
    def is_idle(self) -> bool:
        """Whether no transaction is open, and the next statement would not begin one either."""
        return False

    @property
    def is_autocommit(self) -> bool:
        """Whether each write is committed at once."""
        return False

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open. Also True where only the server knows that."""
        return True

    @property
    def in_savepoint(self) -> bool:
        """Whether a savepoint is open.

        The caller, or its library, may roll back to a savepoint after an error, and then go on and commit.
        """
        return False

    @abstractmethod
    def perform(self, steps_on: StepsOn[T]) -> Awaitable[T]:
        """Make the step for this connection, run it, and return an awaitable with its result.

        On a sync connection the step has run when this returns. On an async connection it begins when the result is
        awaited; the result is then a coroutine, and closing it unused is allowed.
        """


#: Makes a step for a connection.
StepsOn: TypeAlias = Callable[[CallersConnection], Steps[T]]


class _Asked(CallersConnection):
    """A connection with one method for each request of a step. On an async connection they return awaitables."""

    @abstractmethod
    def run(self, name: str, params: Params) -> Any:
        """Return the rows of a statement; an empty list if it has no result."""

    def roll_back(self) -> Any:
        return self.target.rollback()

    def close(self) -> Any:
        return self.target.close()

    def _do(self, ask: Ask) -> Any:
        if isinstance(ask, Run):
            return self.run(*ask)
        return self.roll_back() if ask is End.ROLL_BACK else self.close()


class CallersSyncConnection(_Asked):
    def perform(self, steps_on: StepsOn[T]) -> Awaitable[T]:
        return Ready(self.drive(steps_on))

    def drive(self, steps_on: StepsOn[T]) -> T:
        """Run the step to its end now, and return its result. An error of a request is raised at the step's `yield`."""
        steps = steps_on(self)
        rows: Any = None
        failed: BaseException | None = None
        try:
            while True:
                # Not in the `except`: the step's own errors would name this one as their context.
                ask = steps.send(rows) if failed is None else steps.throw(failed)
                try:
                    rows, failed = self._do(ask), None
                except BaseException as error:  # noqa: BLE001 - the step decides
                    failed = error
        except StopIteration as done:
            result: T = done.value
            return result
        finally:
            failed = None  # its traceback holds this frame, and with it the connection


class CallersAsyncConnection(_Asked):
    async def perform(self, steps_on: StepsOn[T]) -> T:
        """Run the step to its end with `await`, and return its result.

        An error of a request is raised at the step's `yield`.
        """
        steps = steps_on(self)
        rows: Any = None
        failed: BaseException | None = None
        try:
            while True:
                ask = steps.send(rows) if failed is None else steps.throw(failed)
                try:
                    rows, failed = await self._do(ask), None
                except BaseException as error:  # noqa: BLE001 - the step decides
                    failed = error
        except StopIteration as done:
            result: T = done.value
            return result
        finally:
            failed = None
