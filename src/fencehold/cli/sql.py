"""`fencehold sql init`: the tables as text, for whoever may create them."""

from __future__ import annotations

import click

from fencehold.backends.sql_text import items_table
from fencehold.cli.outbox_options import outboxes_option
from fencehold.cli.setup import Setup, with_setup
from fencehold.connect import backend_for, scheme
from fencehold.model.errors import ConfigurationError
from fencehold.model.names import table_name
from fencehold.runtime.store import DEFAULT_OUTBOX

# backend_for() wants an address to choose the dialect by; nothing is opened.
PLACEHOLDERS = {"sqlite": "sqlite:///any.db", "postgresql": "postgresql://any/any"}

GRANTS = """\
-- The least rights for the programs that use the table (replace app by their role). Never grant DELETE: a deleted row
-- starts again at epoch 1, and a stale writer could pass the fence. SELECT on fencehold_schema lets them call init,
-- which finds everything up to date.
{schema}-- GRANT SELECT, INSERT, UPDATE ON {table} TO app;
-- GRANT SELECT ON {steps} TO app;
"""
OUTBOX_GRANTS = """\
-- Of the outbox, for producers, workers and reapers; DELETE on it only for whoever runs `fencehold outbox purge`.
{schema}-- GRANT SELECT, INSERT, UPDATE ON {table} TO app;
-- GRANT SELECT, INSERT, UPDATE ON {reaper} TO app;
-- GRANT SELECT, INSERT ON {consumed} TO app;
-- GRANT SELECT ON {steps} TO app;
"""
ITEM_GRANTS = """\
-- Of the items of all kinds. DELETE is safe here: the tokens of an item that is deleted and put again go on rising.
{schema}-- GRANT SELECT, INSERT, UPDATE, DELETE ON {table} TO app;
-- GRANT USAGE ON SEQUENCE {token} TO app;
-- GRANT SELECT ON {steps} TO app;
"""
FILE_RIGHTS = """\
-- SQLite has no grants: the programs that use the table need write permission on the file and on its folder.
"""

EPILOG = """\b
Examples:
  fencehold sql init --dialect postgres | psql -v ON_ERROR_STOP=1 mydb
  FENCEHOLD_DSN=sqlite:///app.db fencehold sql init --outbox orders
\b
Exit codes: 0 done, 78 bad configuration
"""


@click.group()
def sql() -> None:
    """The statements behind a command, as text."""


@sql.command(epilog=EPILOG)
@click.option("--dialect", type=click.Choice(["sqlite", "postgres"]), help="[that of the URL in FENCEHOLD_DSN]")
@outboxes_option
@with_setup
def init(setup: Setup, dialect: str | None, outbox_names: tuple[str, ...]) -> None:
    """Print what `fencehold init` would run, with the least GRANTs. Connects to nothing."""
    name = _dialect(setup, dialect)
    outboxes = list(dict.fromkeys(table_name(one) for one in outbox_names or (DEFAULT_OUTBOX,)))
    script = _script(name, setup.table, outboxes)
    payload = {"dialect": name, "table": setup.table, "outboxes": outboxes, "sql": script}
    setup.screen.result(payload, script.rstrip("\n"))


def _script(dialect: str, table: str, outboxes: list[str]) -> str:
    backend = backend_for(PLACEHOLDERS[dialect], table)()
    # (script, GRANTs, table) of everything that init makes; the items of all kinds share one table
    made = [
        (backend.schema.script(), GRANTS, table),
        (backend.items("any").script(), ITEM_GRANTS, items_table(table)),
        *((backend.events(one).script(), OUTBOX_GRANTS, one) for one in outboxes),
    ]
    if dialect == "sqlite":
        return "\n".join([*(script for script, _, _ in made), FILE_RIGHTS])
    return "\n".join(f"{script}\n{_rights(grants, name)}" for script, grants, name in made)


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


def _rights(grants: str, table: str) -> str:
    schema, _, name = table.rpartition(".")
    usage = f'-- GRANT USAGE ON SCHEMA "{schema}" TO app;\n' if schema else ""
    quoted = {
        suffix: f'"{schema}"."{name}{suffix}"' if schema else f'"{name}{suffix}"'
        for suffix in ("", "_reaper", "_consumed", "_token")
    }
    steps = f'"{schema}"."fencehold_schema"' if schema else '"fencehold_schema"'
    named = {suffix.lstrip("_") or "table": name for suffix, name in quoted.items()}
    return grants.format(schema=usage, steps=steps, **named)
