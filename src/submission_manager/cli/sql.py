"""`submission-manager sql init`: prints the service's tables as SQL, for a user who may create them."""

from __future__ import annotations

import os

import click

from fencehold import ConfigurationError
from fencehold.command import lease_script, put
from submission_manager.settings import BY_NAME
from submission_manager.stores.opening import LEASE_TABLE, kind_of, open_store

VARIABLE = BY_NAME["database"].variable
#: The dialect's name here, and its URL scheme; ADDRESSES select the dialect's code, and no database is opened.
DIALECTS = {"sqlite": "sqlite", "postgres": "postgresql", "mssql": "mssql"}
ADDRESSES = {"sqlite": "sqlite:///any.db", "postgresql": "postgresql://any/any", "mssql": "mssql://any/any"}
CHOICE = "Give --dialect sqlite, postgres or mssql"

INTENTS = """\
-- Of intents and attempts; attempts are only ever added. Whoever purges old ones needs DELETE on both as well.
-- GRANT SELECT, INSERT, UPDATE ON submission_intents TO app;
-- GRANT SELECT, INSERT ON submission_attempts TO app;
-- GRANT SELECT, INSERT ON submission_owner TO app;
"""
FILE_RIGHTS = """\
-- SQLite has no grants: the service needs write permission on the file and on its folder.
"""

EPILOG = """\b
Examples:
  submission-manager sql init --dialect postgres | psql -v ON_ERROR_STOP=1 mydb
  submission-manager sql init --dialect mssql > tables.sql && sqlcmd -b -S db.example -d mydb -i tables.sql
\b
The GRANTs are comments: replace app by the service's own user, and run them without their dashes. With them, an
instance starts with --no-init, or without it, on tables that are up to date.
\b
Exit codes: 0 done, 78 bad configuration
"""


@click.group()
def sql() -> None:
    """The statements behind the service, as text."""


@sql.command(epilog=EPILOG)
@click.option("--dialect", type=click.Choice(list(DIALECTS)), help=f"[that of the URL in {VARIABLE}]")
def init(dialect: str | None) -> None:
    """Print the tables that `serve` creates, with the least GRANTs. Connects to nothing."""
    put(script(DIALECTS[dialect] if dialect else _of_url(os.environ.get(VARIABLE))).rstrip("\n"))


def script(dialect: str) -> str:
    address = ADDRESSES[dialect]
    rights = FILE_RIGHTS if dialect == "sqlite" else INTENTS
    return f"{lease_script(address, LEASE_TABLE)}\n{open_store(address).script()}\n{rights}"


def _of_url(url: str | None) -> str:
    if not url:
        raise ConfigurationError("No dialect was named.", hint=f"{CHOICE}, or set {VARIABLE}.", code="no_dialect")
    name = kind_of(url)
    if name not in ADDRESSES:
        raise ConfigurationError(f"The service has no tables for {name!r}.", hint=f"{CHOICE}.", code="no_dialect")
    return name
