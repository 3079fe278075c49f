"""`fencehold sql init`: prints the tables as SQL, for a user who may create them."""

from __future__ import annotations

import click

from fencehold.backends.sql.statements import items_table
from fencehold.cli.outbox.options import items_option, outboxes_option
from fencehold.cli.setup import Setup, with_setup
from fencehold.cli.sql.rights import rights
from fencehold.connect import backend_for, scheme
from fencehold.model.errors import ConfigurationError
from fencehold.model.names import table_name
from fencehold.ports.backend import events_of, items_of

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
    """The SQL that makes the lease table on a database of this kind, with the least GRANTs as comments. Opens nothing.

    SQLite has no GRANTs.
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
