"""Statements from .sql files. The files use the default table names and `:parameters`; both are replaced once, here."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib import resources
from typing import Any, TypeVar

from fencehold.model.errors import ConfigurationError, FenceholdError
from fencehold.ports.checkup import TablesMade

E = TypeVar("E", bound=FenceholdError)

_PARAMETER = re.compile(r"(?<![:\w]):([a-z_][a-z0-9_]*)")
_SCHEMA_TABLE = "fencehold_schema"
MISSING_HINT = "Create the tables with {how}."
GRANT_HINT = "GRANT this user what `fencehold sql init{option}` prints (purge also needs DELETE on an outbox)."
OLD_HINT = "Bring them up to date first: {how}. Programs of the version before run on meanwhile."
# Endings of names that must name their schema; indexes, constraints and triggers are in that of their table.
_QUALIFIED_SUFFIXES = ("", "_guard", "_reaper", "_consumed", "_identity", "_token", "_terms", "_lift", "_place")


@dataclass(frozen=True)
class Topic:
    """A set of statements (leases, outbox or items): their folder below sql/, and the table name that they use."""

    folder: str
    default_table: str


LEASES = Topic("", "fencehold_leases")
OUTBOX = Topic("outbox", "fencehold_outbox")
ITEMS = Topic("items", "fencehold_items")


#: The first step of each set of tables: it shows in the record of steps which set a table belongs to.
FIRST_STEPS = {"0001_outbox": OUTBOX, "0001_items": ITEMS}


def items_table(lease_table: str) -> str:
    """Return the name of the table that holds the items of all kinds; it is in the schema of the lease table."""
    schema, dot, _ = lease_table.rpartition(".")
    return f"{schema}{dot}{ITEMS.default_table}"


@dataclass(frozen=True)
class Step:
    """One numbered migration: its name and its SQL."""

    name: str
    sql: str


def named(sql: str) -> str:
    """Return the statement unchanged, with `:name` parameters, as sqlite3 and SQLAlchemy take them."""
    return sql


def pyformat(sql: str) -> str:
    """Return the statement with `%(name)s` in place of `:name` parameters, as psycopg takes them."""
    return _PARAMETER.sub(r"%(\1)s", sql.replace("%", "%%"))


def numbered(sql: str) -> tuple[str, list[str]]:
    """Return the statement with `$1`, `$2` and so on for its `:name` parameters, as asyncpg takes them.

    Also return the names of the parameters, in the order of these numbers.
    """
    names = list(dict.fromkeys(_PARAMETER.findall(sql)))
    return _PARAMETER.sub(lambda found: f"${names.index(found[1]) + 1}", sql), names


#: (a condition that is true when the step is recorded, the step's text) -> a text that then skips the step
Once = Callable[[str, str], str]


class Statements:
    """The statements of one topic in one dialect, for one table; `statements[name]` is the text of `name`.sql."""

    def __init__(self, package: str, table: str, style: Callable[[str], str] = named, topic: Topic = LEASES) -> None:
        self.table = table
        self.topic = topic
        self._source = (package, style, topic)
        self._table = re.compile(
            rf"(['\"]){topic.default_table}\1|\b(?:{topic.default_table}\w*|{_SCHEMA_TABLE})\b", re.ASCII
        )
        raw, steps = _files(package, topic.folder)
        self._named = {name: self._bound(text) for name, text in raw}
        self._styled = {name: style(text) for name, text in self._named.items()}
        self.steps = [Step(name, self._bound(text)) for name, text in steps]

    def __getitem__(self, name: str) -> str:
        """Return the statement with parameters as the driver writes them."""
        return self._styled[name]

    def __contains__(self, name: object) -> bool:
        return name in self._named

    def named(self, name: str) -> str:
        """Return the statement with `:name` parameters."""
        return self._named[name]

    def records(self) -> list[Statements]:
        """Return the statements that read the record of migrations, in the table's schema and in the default schema."""
        package, style, topic = self._source
        return [self, Statements(package, self.table.rpartition(".")[2], style, topic)] if "." in self.table else [self]

    @property
    def init_option(self) -> str:
        """The option of `fencehold init` and `fencehold sql init` that makes or upgrades exactly these tables."""
        if self.topic == OUTBOX:
            return f" --outbox {self.table}"
        if self.topic == ITEMS:
            return " --items"
        return f" --table {self.table}" if self.topic == LEASES and self.table != LEASES.default_table else ""

    @property
    def missing_asked(self) -> tuple[str, ...]:
        """The names of the statements that list missing parts; run them in this order until one returns rows.

        Only leases have `safeguards_missing`: an outbox and items would find the file of the leases by that name.
        """
        own = ("parts_missing", "safeguards_missing") if self.topic == LEASES else ("parts_missing",)
        return tuple(name for name in own if name in self._named)

    def recorded(self, applied: set[str]) -> bool:
        """Whether at least one migration of this topic is in `applied`.

        Another topic may have recorded its migrations for a table of the same name; those do not count.
        """
        return any(step.name in applied for step in self.steps)

    def due(self, applied: set[str], there: bool) -> list[Step]:
        """Return the migrations that must still run. `applied`: the recorded ones; `there`: the main table exists.

        For a table that was made and dropped, all of them are returned. Raises ConfigurationError (table_lost) if that
        is the lease table, because a new one would grant its epochs again from 1.
        """
        if there or not self.recorded(applied):
            return [step for step in self.steps if step.name not in applied]
        if self.topic == LEASES:
            raise table_lost(self.table)
        return self.steps

    def script(self, between: str = "", once: Once | None = None) -> str:
        """Return the SQL of all migrations as one text for a database's own shell.

        `between` ends a batch, where the shell needs that. `once` makes a migration do nothing if it is recorded, so
        that the script can be run again; for shells that have conditions.
        """
        head = f"-- fencehold: tables for {self.table}\n{self.named('steps_table')};\n{between}"
        return head + (between or "\n").join(self._step_script(step, between, once) for step in self.steps)

    def _step_script(self, step: Step, between: str, once: Once | None) -> str:
        sql = step.sql if once is None else once(self._filled("steps_recorded", step), step.sql)
        return f"\n-- step {step.name}\n{sql}{between}{self._filled('steps_record', step)};\n"

    def _filled(self, name: str, step: Step) -> str:
        values = {":component": f"'{self.table}'", ":step": f"'{step.name}'"}
        return re.sub(":component|:step", lambda m: values[m[0]], self.named(name))

    def _bound(self, sql: str) -> str:
        return self._table.sub(self._identifier, sql)

    def _identifier(self, match: re.Match[str]) -> str:
        schema, _, table = self.table.rpartition(".")
        word = match[0]
        if quote := match[1]:  # a channel's name, as text or identifier: one word, which includes the dot
            return f"{quote}{self.table}{quote}"
        if word == _SCHEMA_TABLE:
            return f'"{schema}"."{word}"' if schema else f'"{word}"'
        suffix = word.removeprefix(self.topic.default_table)
        name = table + suffix
        return f'"{schema}"."{name}"' if schema and suffix in _QUALIFIED_SUFFIXES else f'"{name}"'


def tables_made(lease_table: str, rows: Iterable[tuple[str, str]]) -> TablesMade:
    """Return which outboxes exist and whether there are items.

    `rows`: the tables and migrations that `init` recorded, if the table still exists.
    """
    found = [(component, FIRST_STEPS[step]) for component, step in rows if step in FIRST_STEPS]
    return TablesMade(
        outboxes=sorted({component for component, topic in found if topic == OUTBOX}),
        has_items=(items_table(lease_table), ITEMS) in found,
    )


def _how_to_init(option: str = "") -> str:
    return f"`fencehold init{option}` or `await store.init()` (`fencehold sql init{option}` prints the SQL)"


def table_exists(statements: Statements, applied: set[str]) -> ConfigurationError:
    """Return the error for a table that has our name but is not ours.

    `applied`: the migrations recorded for this table's name. If they are of another topic, the error says which.
    """
    table = statements.table
    hint = f"Give the outbox another name, for example store.outbox({table + '_events'!r}) or --outbox {table}_events."
    if statements.topic == ITEMS:
        hint = "Rename that table: fencehold keeps the items of all kinds in one of this name."
    ours = {
        "0001_leases": "it is the table of leases",
        "0001_items": "it holds the items",
        "0001_outbox": "it is an outbox",
    }
    whose = next((words for step, words in ours.items() if step in applied), "fencehold did not make it")
    if table.rpartition(".")[2] == _SCHEMA_TABLE:
        whose = "in it fencehold records what it made"
    return ConfigurationError(
        f"There is a table {table!r} already, and {whose}; nothing was changed.", hint=hint, code="table_exists"
    )


def table_lost(table: str) -> ConfigurationError:
    return ConfigurationError(
        f"The table {table!r} was made once and is gone; a new one would start again at epoch 1, and a stale writer "
        "could pass the fence. Nothing was changed.",
        hint="Restore it from a backup. If nothing still uses its epochs, delete the rows with component "
        f"{table!r} from {_SCHEMA_TABLE} (on PostgreSQL also drop the function {table}_guard), then init again.",
        code="table_lost",
    )


def schema_old(text: str) -> ConfigurationError:
    """Return the error for a statement that names a column which does not exist: the tables are of an older version."""
    return ConfigurationError(
        f"The tables are older than this version of fencehold, or a column was dropped: {text}.",
        hint=OLD_HINT.format(how=_how_to_init()),
        code="schema_old",
    )


def schema_missing(text: str) -> ConfigurationError:
    return ConfigurationError(text, hint=MISSING_HINT.format(how=_how_to_init()), code="schema_missing")


def advised(fault: E, statements: Statements) -> E:
    """Return the same error. If tables are missing or old, its hint now names the command that makes or upgrades them.

    If a right is missing, its hint names the command that prints the GRANTs.
    """
    if fault.code == "schema_missing":
        fault.hint = MISSING_HINT.format(how=_how_to_init(statements.init_option))
    if fault.code == "schema_old":
        fault.hint = OLD_HINT.format(how=_how_to_init(statements.init_option))
    return granting(fault, statements.init_option)


def no_permission(text: str) -> ConfigurationError:
    return ConfigurationError(text, hint=GRANT_HINT.format(option=""), code="no_permission")


def granting(fault: E, option: str) -> E:
    """Return the same error. If a GRANT would help, its hint now names the command that prints the GRANTs."""
    if fault.hint == GRANT_HINT.format(option=""):
        fault.hint = GRANT_HINT.format(option=option)
    return fault


def parts_lost(statements: Statements, missing: list[str]) -> ConfigurationError:
    """Return the error for tables whose migrations are all recorded, but that lack the parts in `missing`."""
    if any(" " in part for part in missing):  # no name has a space: these are keys and triggers
        return safeguard_lost(statements, missing)
    what = "column" if any(part.removeprefix(statements.table).count(".") for part in missing) else "table"
    return ConfigurationError(
        f"Made once and gone now: {', '.join(missing)}. Nothing was changed.",
        hint="Restore it from a backup. If what it held may be lost, make it again by hand, as "
        f"`fencehold sql init{statements.init_option}` prints it.",
        code=f"{what}_lost",
    )


def safeguard_lost(statements: Statements, missing: list[str]) -> ConfigurationError:
    """Return the error for a lease table that lacks a key or a trigger that keeps stale writers out."""
    return ConfigurationError(
        f"The table {statements.table} lacks what keeps stale writers out: {', '.join(missing)}. Nothing was changed.",
        hint=f"Make it again by hand, as `fencehold sql init{statements.init_option}` prints it; what is disabled: "
        "ALTER TABLE ... ENABLE TRIGGER. If rows were deleted or epochs set back meanwhile, first stop every program "
        "that held a lease.",
        code="safeguard_lost",
    )


def judged(
    statements: Statements, applied: set[str], there: bool, missing: list[str], is_foreign: bool, where: str = ""
) -> ConfigurationError | None:
    """Return the error for what is wrong with the tables; None if nothing is missing.

    `there`: the main table exists. `is_foreign`: somebody else's table has one of our names. `where`: words for the
    file that lacks the tables, where the database is a file.
    """
    if not missing:
        return None
    if is_foreign:
        return table_exists(statements, applied)
    try:
        due = statements.due(applied, there)
    except ConfigurationError as lost:
        return lost
    if not due:
        return parts_lost(statements, missing)
    names = ", ".join(missing)
    fault = schema_old(f"missing: {names}") if there else schema_missing(f"There are no such tables{where}: {names}.")
    return advised(fault, statements)


@functools.cache
def _files(package: str, folder: str) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """Return the name and text of each statement of one folder, and of each migration. Read once per process.

    The statements in `sql/` itself belong to every folder; if both have a file of the same name, the folder's is used.
    """
    shared = resources.files(package) / "sql"
    place = shared / folder if folder else shared
    raw = [(f.name.removesuffix(".sql"), _bare(f.read_text("utf-8"))) for f in _sql_files(shared, place)]
    migrations = place / "migrations"
    steps = sorted(migrations.iterdir(), key=lambda f: f.name) if migrations.is_dir() else []
    return raw, [(f.name.removesuffix(".sql"), f.read_text("utf-8")) for f in steps]


def _sql_files(*folders: Any) -> list[Any]:
    """Return the .sql files of all folders, in the order of the folders.

    The caller uses the later one of two files that have the same name.
    """
    return [f for folder in folders for f in folder.iterdir() if f.name.endswith(".sql")]


def _bare(text: str) -> str:
    """Return the statement without comments and closing semicolon: a comment could look as if it had parameters."""
    lines = (line for line in text.splitlines() if not line.lstrip().startswith("--"))
    return "\n".join(lines).strip().removesuffix(";")
