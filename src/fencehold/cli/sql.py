"""`fencehold sql init`: the tables as text, for whoever may create them."""

from __future__ import annotations

import click

from fencehold.cli.setup import Setup, with_setup
from fencehold.connect import backend_for, scheme
from fencehold.model.errors import ConfigurationError

# backend_for() wants an address to choose the dialect by; nothing is opened.
PLACEHOLDERS = {"sqlite": "sqlite:///any.db", "postgresql": "postgresql://any/any"}

GRANTS = """\
-- The least rights for the programs that use the table (replace app by their role). Never grant DELETE: a deleted row
-- starts again at epoch 1, and a stale writer could pass the fence.
{schema}-- GRANT SELECT, INSERT, UPDATE ON {table} TO app;
"""
FILE_RIGHTS = """\
-- SQLite has no grants: the programs that use the table need write permission on the file and on its folder.
"""

EPILOG = """\b
Examples:
  fencehold sql init --dialect postgres | psql -v ON_ERROR_STOP=1 mydb
  FENCEHOLD_DSN=sqlite:///app.db fencehold sql init
\b
Exit codes: 0 done, 78 bad configuration
"""


@click.group()
def sql() -> None:
    """The statements behind a command, as text."""


@sql.command(epilog=EPILOG)
@click.option("--dialect", type=click.Choice(["sqlite", "postgres"]), help="[that of the URL in FENCEHOLD_DSN]")
@with_setup
def init(setup: Setup, dialect: str | None) -> None:
    """Print what `fencehold init` would run, with the least GRANTs. Connects to nothing."""
    name = _dialect(setup, dialect)
    script = backend_for(PLACEHOLDERS[name], setup.table)().schema.script() + "\n" + _rights(name, setup.table)
    setup.screen.result({"dialect": name, "table": setup.table, "sql": script}, script.rstrip("\n"))


def _dialect(setup: Setup, given: str | None) -> str:
    if given is not None:
        return {"postgres": "postgresql"}.get(given, given)
    dsn = setup.dsn_or_none
    if dsn is None:
        raise ConfigurationError(
            "No dialect was named.", hint="Give --dialect sqlite or postgres, or set FENCEHOLD_DSN.", code="no_dialect"
        )
    name = scheme(dsn)
    if name not in PLACEHOLDERS:
        raise ConfigurationError(
            f"There are no tables for {name!r}.", hint="Give --dialect sqlite or postgres.", code="no_dialect"
        )
    return name


def _rights(dialect: str, table: str) -> str:
    if dialect == "sqlite":
        return FILE_RIGHTS
    schema, _, name = table.rpartition(".")
    usage = f'-- GRANT USAGE ON SCHEMA "{schema}" TO app;\n' if schema else ""
    return GRANTS.format(schema=usage, table=f'"{schema}"."{name}"' if schema else f'"{name}"')
