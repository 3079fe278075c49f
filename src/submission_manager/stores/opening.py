"""URL in, the service's store out: the one place that chooses among them."""

from __future__ import annotations

from urllib.parse import unquote

from fencehold.connect import backend_for, scheme
from fencehold.model.errors import ConfigurationError
from submission_manager.ports import IntentStore

LEASE_TABLE = "submission_manager_leases"
KNOWN = "sqlite:///file.db, postgresql://user@host/db or mssql://user@host/db"


def open_store(url: str) -> IntentStore:
    """The store for the database at `url`, not yet open; a wrong URL is refused here, and its password never shown.

    The leases stand in the same database: `fencehold.connect(url, table=LEASE_TABLE)`.
    """
    kind = scheme(url)
    if kind not in ("sqlite", "postgresql", "mssql"):
        raise ConfigurationError(f"The service has no store for {kind!r}.", hint=f"Use {KNOWN}.", code="bad_url")
    backend_for(url, LEASE_TABLE)  # refuses what the leases could not use either, and says which driver is missing
    rest = url.partition("://")[2]
    match kind:
        case "postgresql":
            from submission_manager.stores.postgres_store import PostgresStore

            return PostgresStore("postgresql://" + rest)
        case "mssql":
            from submission_manager.stores.sqlserver_store import SqlServerStore

            return SqlServerStore("mssql://" + rest)
        case _:
            from submission_manager.stores.sqlite_store import SqliteStore

            return SqliteStore(unquote(rest.partition("?")[0].removeprefix("/")))
