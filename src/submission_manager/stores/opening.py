"""Chooses the service's store by the database URL; the only place that does."""

from __future__ import annotations

from urllib.parse import unquote

from fencehold.connect import backend_for, scheme
from fencehold.model.durable import durable as durability
from fencehold.model.errors import ConfigurationError
from fencehold.ports.facts import FactSink
from submission_manager.ports import IntentStore

LEASE_TABLE = "submission_manager_leases"
KNOWN = "sqlite:///file.db, postgresql://user@host/db or mssql://user@host/db"


def kind_of(url: str) -> str:
    """Its scheme; what is no URL is refused, and named are the databases of the service, not all of fencehold's."""
    try:
        return scheme(url)
    except ConfigurationError as error:
        raise ConfigurationError(error.message, hint=f"Use {KNOWN}.", code=error.code) from None


def open_store(url: str, durable: str | None = None, facts: FactSink | None = None) -> IntentStore:
    """The store for the database at `url`, not yet open.

    Raises ConfigurationError for a wrong URL, without showing its password. The leases are in the same database:
    `fencehold.connect(url, table=LEASE_TABLE)`, with the same `durable`.
    """
    kind = kind_of(url)
    if kind not in ("sqlite", "postgresql", "mssql"):
        raise ConfigurationError(f"The service has no store for {kind!r}.", hint=f"Use {KNOWN}.", code="bad_url")
    asked = durability(durable)
    backend_for(url, LEASE_TABLE, None, asked)  # raises if the leases could not use it or a driver is missing
    rest = url.partition("://")[2]
    match kind:
        case "postgresql":
            from submission_manager.stores.postgres.store import PostgresStore

            return PostgresStore("postgresql://" + rest, asked, facts)
        case "mssql":
            from submission_manager.stores.sqlserver.store import SqlServerStore

            return SqlServerStore("mssql://" + rest)
        case _:
            from submission_manager.stores.sqlite.store import SqliteStore

            return SqliteStore(unquote(rest.partition("?")[0].removeprefix("/")))
