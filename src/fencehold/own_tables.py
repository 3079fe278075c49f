"""Tables of your own in the database of the leases: runs your statements as safely as the store runs its own.

Every call ends within its limit; every error becomes Unavailable, Uncertain or ConfigurationError; connections that
died are replaced; and a write can be fenced by a term. See docs/own-tables.md.
"""

from __future__ import annotations

from fencehold.connect import backend_for, scheme, sqlite_file
from fencehold.model import names
from fencehold.model.durable import Durability, WithoutStandby
from fencehold.model.durable import durable as durability
from fencehold.model.errors import ConfigurationError
from fencehold.ports.facts import FactSink
from fencehold.ports.own_tables import OwnTables, Reader, Row, Statement, Steps

__all__ = ["OwnTables", "Reader", "Row", "Statement", "Steps", "own_tables"]


def own_tables(
    url: str,
    package: str,
    table: str,
    *,
    connections: int = 4,
    fenced_connections: int = 4,
    durable: Durability | None = None,
    without_standby: WithoutStandby | None = None,
    facts: FactSink | None = None,
) -> OwnTables:
    """Return your own tables on the database at `url`, not yet connected.

    Raises ConfigurationError for a wrong URL or a missing driver. `package` holds your statements in `sql/<dialect>/`,
    and in `sql/<dialect>/migrations/` the steps that make the tables; `table` is the first of these tables: the steps
    are recorded under its name. At most `connections` are used at once, and `fenced_connections` for fenced writes (SQL
    Server); SQLite has one thread each for reads, writes and fenced writes. `durable` and `without_standby` mean the
    same as for the store: what its commits wait for, the commits of these tables wait for too. `facts` gets a warning
    if a server waits for no standby.
    """
    kind = scheme(url)
    if kind not in ("sqlite", "postgresql", "mssql"):
        hint = "Use sqlite:///file.db, postgresql://user@host/db or mssql://user@host/db."
        raise ConfigurationError(f"{kind!r} has no tables of your own.", hint=hint, code="bad_url")
    table, asked = names.table_name(table), durability(durable, without_standby)
    backend_for(url, durable=asked)  # raises if a store could not use it
    rest = url.partition("://")[2]
    match kind:
        case "postgresql":
            from fencehold.backends.postgres.own_tables import PostgresOwnTables

            return PostgresOwnTables(
                f"postgresql://{rest}", package, table, connections=connections, durable=asked, facts=facts
            )
        case "mssql":
            from fencehold.backends.sqlserver.own_tables import SqlServerOwnTables

            return SqlServerOwnTables(
                f"mssql://{rest}", package, table, connections=connections, fenced=fenced_connections, name=table
            )
        case _:
            from fencehold.backends.sqlite.own_tables import SqliteOwnTables

            return SqliteOwnTables(sqlite_file(url), package, table, name=table)
