"""What all SQL databases share for the tables of a service's own (ports/own_tables.py)."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TypeVar

from fencehold.backends.sql.statements import Statements, Topic, named
from fencehold.model.errors import ConfigurationError, Unavailable
from fencehold.ports.own_tables import INIT_LIMIT_S, OPEN_LIMIT_S, HeldTerm, Row, Statement, Steps
from fencehold.ports.schema import SchemaPort
from fencehold.ports.time_limit import fixed

T = TypeVar("T")
PROBE = Statement("probe")


class OwnStatements(Statements):
    """The statements of a service in one dialect, by name.

    A name that the service does not have is looked up among fencehold's own, which record migrations and test a
    connection.
    """

    def __init__(self, dialect: str, package: str, table: str, style: Callable[[str], str] = named) -> None:
        super().__init__(package, table, style, Topic(dialect, table))
        self._shared = Statements(f"fencehold.backends.{dialect}", table, style)

    def _bound(self, sql: str) -> str:
        return sql  # a service names its tables itself; a word such as "jobs" may also be a value or a parameter

    def __getitem__(self, name: str) -> str:
        return super().__getitem__(name) if name in self else self._shared[name]

    def named(self, name: str) -> str:
        return super().named(name) if name in self else self._shared.named(name)

    def reads(self, name: str) -> bool:
        """Whether the statement only reads: its first word is SELECT."""
        return self.named(name).startswith("SELECT")


class RunsOneByOne:
    """Runs several statements one after another, within one limit; a subclass says how to run one."""

    async def run(self, statement: Statement, limit_s: float) -> list[Row]:
        raise NotImplementedError

    async def run_all(self, statements: Sequence[Statement], limit_s: float) -> list[list[Row]]:
        left_s = fixed(limit_s)
        return [await self.run(statement, left_s()) for statement in statements]


class ReaderBase(RunsOneByOne):
    """A reader on a database that cannot notify it of changes, so `listen` returns False."""

    def on_hint(self, hint: Callable[[], None]) -> None:
        return None

    async def listen(self, limit_s: float) -> bool:
        return False


class OwnTablesBase(RunsOneByOne):
    def __init__(self, statements: OwnStatements, schema: SchemaPort) -> None:
        self._statements = statements
        self._schema = schema

    async def fenced(self, term: HeldTerm, steps: Steps[T]) -> T:
        """Run the steps in one fenced transaction and return their result. The steps are closed at the end.

        Raises ConfigurationError (steps_used) if they have begun before: going on in their middle would commit half of
        what they are for.
        """
        if inspect.getgeneratorstate(steps) != inspect.GEN_CREATED:
            raise ConfigurationError(
                "These steps have begun already, perhaps in an earlier transaction; nothing was sent.",
                hint="Call the function that makes them anew for each call of fenced().",
                code="steps_used",
            )
        try:
            return await self._fenced_steps(term, steps)
        finally:
            with suppress(ValueError):  # SQLite's thread may still be running them
                steps.close()

    async def _fenced_steps(self, term: HeldTerm, steps: Steps[T]) -> T:
        raise NotImplementedError

    async def open(self, limit_s: float = OPEN_LIMIT_S) -> None:
        await self.run(PROBE, limit_s)

    async def init(self, limit_s: float = INIT_LIMIT_S) -> list[str]:
        return await self._schema.init(limit_s)

    def script(self) -> str:
        return self._schema.script()

    async def missing(self, limit_s: float) -> list[str]:
        left_s = fixed(limit_s)
        table = self._statements.table
        if missing := await self.run(Statement("missing"), limit_s):
            return names(missing)
        applied = names(await self.run(Statement("steps_applied", {"component": table}), left_s()))
        return [] if {step.name for step in self._statements.steps} <= set(applied) else [f"{table} (an old one)"]

    async def rights_missing(self, limit_s: float) -> list[str]:
        return names(await self.run(Statement("rights_missing"), limit_s))


def names(rows: list[Row]) -> list[str]:
    """Return the values of the rows of a statement that has one column."""
    return [value for row in rows for value in row.values()]


def busy() -> Unavailable:
    return Unavailable("Every connection was busy; nothing was sent.", code="busy")


def closed() -> Unavailable:
    return Unavailable("The store is closed.", code="store_closed")
