"""`fencehold sql init`: prints the tables as SQL, for a user who may create them."""

from __future__ import annotations

from collections.abc import Mapping

import click

from fencehold.backends.sql.statements import items_table
from fencehold.cli.outbox.options import items_option, outboxes_option
from fencehold.cli.setup import Setup, with_setup
from fencehold.connect import backend_for, scheme
from fencehold.model.errors import ConfigurationError
from fencehold.model.names import table_name
from fencehold.ports.backend import events_of, items_of

LEASES = """\
-- The least rights for the programs that use the table (replace app by their role). Never grant DELETE: a deleted row
-- starts again at epoch 1, and a stale writer could pass the fence. SELECT on fencehold_schema lets them call init,
-- which finds everything up to date.
{schema}-- GRANT SELECT, INSERT, UPDATE ON {table} TO app;
"""
STEPS = "-- GRANT SELECT ON {steps} TO app;\n"
OUTBOX = """\
-- Of the outbox, for producers, workers and reapers; whoever runs `fencehold outbox purge` needs DELETE as well, on it
-- and on {consumed}.
{schema}-- GRANT SELECT, INSERT, UPDATE ON {table} TO app;
-- GRANT SELECT, INSERT, UPDATE ON {reaper} TO app;
-- GRANT SELECT, INSERT ON {consumed} TO app;
"""
ITEMS = """\
-- Of the items of all kinds. DELETE is safe here: the tokens of an item that is deleted and put again go on rising.
{schema}-- GRANT SELECT, INSERT, UPDATE, DELETE ON {table} TO app;
"""

#: For each dialect: the rights on leases, items and an outbox.
RIGHTS: Mapping[str, Mapping[str, str]] = {
    "postgresql": {
        "leases": LEASES + STEPS,
        "items": ITEMS + "-- GRANT USAGE ON SEQUENCE {token} TO app;\n" + STEPS,
        "outbox": OUTBOX + STEPS,
    },
    "mssql": {
        "leases": LEASES
        + "-- GRANT SELECT, INSERT, UPDATE ON {terms} TO app;\n"
        + STEPS
        + "-- Nothing else: sp_getapplock, by which a takeover and a fenced write keep apart, is open to every user.\n",
        "items": ITEMS + "-- GRANT UPDATE ON {token} TO app;\n" + STEPS,  # NEXT VALUE FOR needs it
        "outbox": OUTBOX + STEPS,
    },
}
SUFFIXES = ("", "_reaper", "_consumed", "_token", "_terms")


def rights(dialect: str, topic: str, table: str) -> str:
    """Return the GRANTs as SQL comments; each can be run once its two dashes are removed."""
    schema, _, name = table.rpartition(".")
    quoted = _in_brackets if dialect == "mssql" else _in_quotes
    named = {suffix.lstrip("_") or "table": quoted(schema, name + suffix) for suffix in SUFFIXES}
    # On SQL Server no right on the schema itself is needed.
    usage = f'-- GRANT USAGE ON SCHEMA "{schema}" TO app;\n' if schema and dialect == "postgresql" else ""
    named |= {"schema": usage, "steps": quoted(schema, "fencehold_schema")}
    return RIGHTS[dialect][topic].format(**named)


def _in_quotes(schema: str, name: str) -> str:
    return f'"{schema}"."{name}"' if schema else f'"{name}"'


def _in_brackets(schema: str, name: str) -> str:
    """Return the schema's and the table's name in brackets: by default sqlcmd takes a name in quotes for a text."""
    return f"[{schema}].[{name}]" if schema else f"[{name}]"


# backend_for() selects the dialect by an address; no database is opened.
PLACEHOLDERS = {"sqlite": "sqlite:///any.db", "postgresql": "postgresql://any/any", "mssql": "mssql://any/any"}
DIALECTS = {"sqlite": "sqlite", "postgres": "postgresql", "mssql": "mssql"}
CHOICE = "Give --dialect sqlite, postgres or mssql"

FILE_RIGHTS = """\
-- SQLite has no grants: the programs that use the table need write permission on the file and on its folder.
"""

EPILOG = """\b
Examples:
  fencehold sql init --dialect postgres | psql -v ON_ERROR_STOP=1 mydb
  fencehold sql init --dialect mssql > tables.sql
  sqlcmd -b -S db.example -d mydb -i tables.sql
  FENCEHOLD_DSN=sqlite:///app.db fencehold sql init --outbox orders --items

Exit codes: 0 done, 78 bad configuration
"""


@click.group()
def sql() -> None:
    """The statements behind a command, as text."""


@sql.command(epilog=EPILOG)
@click.option("--dialect", type=click.Choice(list(DIALECTS)), help="[that of the URL in FENCEHOLD_DSN]")
@outboxes_option("none")
@items_option
@with_setup
def init(setup: Setup, dialect: str | None, outbox_names: tuple[str, ...], with_items: bool) -> None:
    """Print what `fencehold init` would run in an empty database, with the least GRANTs. Connects to nothing.

    For PostgreSQL and SQL Server the text also upgrades old tables: name every outbox that is there, and --items.
    """
    name = _dialect(setup, dialect)
    outboxes = list(dict.fromkeys(table_name(one) for one in outbox_names))
    script = _script(name, setup.table, outboxes, with_items)
    payload = {"dialect": name, "table": setup.table, "outboxes": outboxes, "items": with_items, "sql": script}
    setup.screen.result(payload, script.rstrip("\n"))


def _script(dialect: str, table: str, outboxes: list[str], with_items: bool) -> str:
    backend = backend_for(PLACEHOLDERS[dialect], table)()
    made = [lease_script(PLACEHOLDERS[dialect], table)]
    if with_items:  # the items of all kinds share one table
        made.append(_with_rights(items_of(backend, "any").schema.script(), dialect, "items", items_table(table)))
    made += [_with_rights(events_of(backend, one).schema.script(), dialect, "outbox", one) for one in outboxes]
    return "\n".join([*made, FILE_RIGHTS] if dialect == "sqlite" else made)


def lease_script(url: str, table: str) -> str:
    """Return the SQL that makes the lease table on a database of this kind. Opens no connection.

    The least GRANTs follow as comments, except for SQLite, which has none.
    """
    return _with_rights(backend_for(url, table)().schema.script(), scheme(url), "leases", table)


def _with_rights(script: str, dialect: str, topic: str, table: str) -> str:
    return script if dialect == "sqlite" else f"{script}\n{rights(dialect, topic, table)}"


def _dialect(setup: Setup, given: str | None) -> str:
    if given is not None:
        return DIALECTS[given]
    dsn = setup.dsn_or_none
    if dsn is None:
        raise ConfigurationError("No dialect was named.", hint=f"{CHOICE}, or set FENCEHOLD_DSN.", code="no_dialect")
    name = scheme(dsn)
    if name not in PLACEHOLDERS:
        raise ConfigurationError(f"There are no tables for {name!r}.", hint=f"{CHOICE}.", code="no_dialect")
    return name
