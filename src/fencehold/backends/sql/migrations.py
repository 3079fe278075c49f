"""Finds out whether tables are there and complete, and makes them: steps without I/O, for every SQL database.

A step here is a generator that yields statements to run. Which migrations are recorded as done is read before the
tables themselves, because another process may be making them.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, TypeAlias, TypeVar

from fencehold.backends.sql.callers.connections import Run
from fencehold.backends.sql.statements import Statements, Step, judged, parts_lost, table_exists
from fencehold.model.errors import ConfigurationError

T = TypeVar("T")

#: Yields a statement by its name, or a migration to run.
Steps: TypeAlias = Generator[Run | Step, list[tuple[Any, ...]], T]


class Migrations:
    """The tables that one set of statements uses: whether they are complete, and the migrations that make them."""

    def __init__(self, statements: Statements) -> None:
        self._statements = statements
        self._table = statements.table

    def made(self) -> Steps[list[str]]:
        """Run the migrations that are not recorded yet; return their names (none if the tables are complete).

        Raises ConfigurationError if a table of ours has a name that somebody else's table has, or if a part that was
        made once is gone.
        """
        if not (yield from self.says("steps_there")):
            yield Run("steps_table")
        applied = yield from self.applied()
        due = self._statements.due(applied, (yield from self.says("table_there")))
        if (yield from self._is_foreign()):
            raise table_exists(self._statements, applied)
        for step in due:
            yield step
            yield Run("steps_record", {"component": self._table, "step": step.name})
        if missing := (yield from self.missing()):
            raise parts_lost(self._statements, missing)
        return [step.name for step in due]

    def judged(self, where: str = "") -> Steps[ConfigurationError | None]:
        """Return an error that says what is wrong with the tables; None if nothing is missing.

        `where`: words for the file that they are in, where the database is a file.
        """
        applied = yield from self.applied()
        there = yield from self.says("table_there")
        missing = yield from self.missing()
        is_foreign = bool(missing) and (yield from self._is_foreign())
        return judged(self._statements, applied, there, missing, is_foreign, where)

    def missing(self) -> Steps[list[str]]:
        for name in self._statements.missing_asked:
            if rows := (yield Run(name)):
                return [part for (part,) in rows]
        return []

    def applied(self) -> Steps[set[str]]:
        """Return the names of the migrations that are recorded as done for this table."""
        if not (yield from self.says("steps_there")):
            return set()
        rows = yield Run("steps_applied", {"component": self._table})
        return {name for (name,) in rows}

    def says(self, name: str) -> Steps[bool]:
        rows = yield Run(name, {"table": self._table})
        return any(said for (said,) in rows)

    def _is_foreign(self) -> Steps[bool]:
        """Whether there is a table with one of our names that fencehold did not make.

        The record of migrations is read after the tables: if another process is making both, both are there by then.
        """
        if "foreign" not in self._statements or not (yield from self.says("foreign")):
            return False
        return not self._statements.recorded((yield from self.applied()))
