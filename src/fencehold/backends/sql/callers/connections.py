"""What a step asks of the caller's connection, and the connections that run it.

A step is a generator without I/O: it yields what it asks, and gets the rows back. So it is written once; a sync
connection runs it at once, an async one with `await`.
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
    """Asks for the rows of a statement, by the name of its file."""

    name: str
    params: Params = NO_PARAMS


class End(Enum):
    """Asks for an end of the caller's transaction. There are no rows."""

    ROLL_BACK = auto()
    #: End the connection: nothing more can be written on it, and nothing committed.
    CLOSE = auto()


Ask: TypeAlias = Run | End
#: A step, running. An error of what it asked for is raised at its `yield`.
Steps: TypeAlias = Generator[Ask, Rows, T]


class CallersConnection(ABC):
    """One kind of connection. Its properties do not ask the database; a kind overrides those that it can tell."""

    #: Whether the driver's errors reach the caller unchanged: its driver is not one of ours.
    keeps_errors = False

    def __init__(self, target: Any, statements: Statements, given: object = None) -> None:
        """`given`: what the caller gave, if `target` was inside it."""
        self.target, self.statements = target, statements
        self.given = target if given is None else given

    @property
    def driver(self) -> Any:
        """The driver's own connection."""
        return self.target

    @property
    def is_closed(self) -> bool:
        return False

    @property
    def is_idle(self) -> bool:
        """Whether no transaction is open, and none would begin with a statement."""
        return False

    @property
    def is_autocommit(self) -> bool:
        """Whether each write is committed at once."""
        return False

    @property
    def in_transaction(self) -> bool:
        """Whether one is open. Also True where only the server knows."""
        return True

    @property
    def in_savepoint(self) -> bool:
        """Whether a savepoint is open, to which the caller, or its library, may roll back after an error and go on."""
        return False

    @abstractmethod
    def perform(self, steps_on: StepsOn[T]) -> Awaitable[T]:
        """Run the step that is made for this connection, and return its result.

        On a sync connection all is done when this returns. On an async one nothing begins before the result is awaited;
        it is a coroutine then, which may be closed instead.
        """


#: Makes a step for a connection.
StepsOn: TypeAlias = Callable[[CallersConnection], Steps[T]]


class _Asked(CallersConnection):
    """What a step asks for. On an async connection each of these returns an awaitable."""

    @abstractmethod
    def run(self, name: str, params: Params) -> Any:
        """Return the rows of a statement; none if it has no result."""

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
        """Run the steps to their end, now. An error of what they ask for is raised at their `yield`."""
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
        """Do as `CallersSyncConnection.drive`, with `await`."""
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
