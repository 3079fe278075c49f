"""`fencehold.connect`: makes a store from a database URL. This is the one place that chooses a backend."""

from __future__ import annotations

import difflib
import importlib
import os
import re
from collections.abc import Callable
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from fencehold.model import names
from fencehold.model.durable import NO_STANDBY_OF_ITS_OWN, Durability, Durable, WithoutStandby, unsupported
from fencehold.model.durable import durable as durability
from fencehold.model.durations import Duration, seconds
from fencehold.model.errors import ConfigurationError
from fencehold.ports.backend import Backend
from fencehold.ports.facts import FactSink
from fencehold.runtime.core.clock import BootClock
from fencehold.runtime.store import Store
from fencehold.telemetry.logs import LogSink
from fencehold.telemetry.traces import traces

KNOWN = {
    "sqlite": "sqlite:///file.db",
    "postgresql": "postgresql://user@host/db",
    "mssql": "mssql://user@host/db",
    "cosmos": "cosmos://host/db?credential=default",
    "memory": "memory://name",
}
SYNONYMS = {"postgres": "postgresql", "file": "sqlite", "sqlserver": "mssql"}
DEFAULT_TABLE = "fencehold_leases"
ANY_FILE_SYSTEM = "file_system=any"
QUOTES = ("'", '"')
_FILE = re.compile(r"[\w ./~-]*\.(?:db|db3|sqlite|sqlite3)|[\w ./~-]*/[\w ./~-]*")
_HOST = re.compile(r"(?:[\w.-]+|\[[0-9A-Fa-f:.]+\])(?::\d+)?")


def connect(
    url: str,
    *,
    table: str = DEFAULT_TABLE,
    facts: FactSink | None = None,
    open_timeout: Duration | None = None,
    durable: Durability | None = None,
    without_standby: WithoutStandby | None = None,
) -> Store:
    """Return a store for the database at `url`, not yet open: use it with `async with`.

    Raises ConfigurationError for a wrong URL. `table` is the name of the lease table (optionally schema.table, but not
    on SQLite); `facts` gets the store's facts, which are logged otherwise. Opening the store waits for a database that
    is away: for ever, or for `open_timeout` (0: one try). `durable="replicated"` (PostgreSQL): a grant or a fenced
    commit counts only once a synchronous standby has stored it; with `"replicated_and_applied"`, once the standby's
    readers see it. All other commits of the store wait for the standby too. A server without a synchronous standby is
    refused (`no_standby`), or, with `without_standby="warn"`, used with a warning.
    """
    facts = facts or LogSink()
    asked = durability(durable, without_standby)
    return Store(
        backend_for(url, table, facts, asked), BootClock(), facts, traces(), label=label(url),
        open_timeout_s=_open_timeout_s(open_timeout),
    )  # fmt: skip


def _open_timeout_s(given: Duration | None) -> float | None:
    if given is None:
        return None
    return 0.0 if given == 0 else seconds(given, "open_timeout")


def backend_for(
    url: str, table: str = DEFAULT_TABLE, facts: FactSink | None = None, durable: Durable | None = None
) -> Callable[[], Backend]:
    """Return a function that makes the backend for this URL.

    Raises ConfigurationError now if the URL or the table's name is wrong; opens no connection. `facts` gets the facts
    that only a backend can report: what each request was charged, where requests are served, and settings of the
    database under which a grant can be lost.
    """
    table = names.table_name(table)
    kind = scheme(url)
    if durable is not None and kind in NO_STANDBY_OF_ITS_OWN:
        raise unsupported(kind)
    match kind:
        case "sqlite":
            return _sqlite(url, table, facts)
        case "postgresql":
            return _postgres(url, table, facts, durable)
        case "mssql":
            return _sqlserver(url, table, facts)
        case "memory":
            return _memory(url)
        case "cosmos":
            return _cosmos(url, table, facts)
        case other:
            raise unknown_scheme(other)


def scheme(url: object) -> str:
    """Return the kind of database that a URL names, such as `postgresql`, without a driver's name after a plus sign.

    Raises ConfigurationError if the URL has no scheme.
    """
    if not isinstance(url, str) or not url.strip():
        raise _no_url(url)
    if url[0] in QUOTES or "://" not in url:
        raise _no_scheme(url)
    name = url.partition("://")[0].partition("+")[0].lower()
    return SYNONYMS.get(name, name)


def _no_url(given: object) -> ConfigurationError:
    if given is None or isinstance(given, str):
        return ConfigurationError(
            f"The address of the database is {'empty' if given is not None else 'None'}.",
            hint="Name one, for example sqlite:///app.db. Is a variable not set?",
            code="no_dsn",
        )
    hint = "For a SQLite file: f'sqlite:///{path}'." if isinstance(given, os.PathLike) else f"Use {_forms()}."
    message = f"The database URL is a {type(given).__name__}, which is no text."
    return ConfigurationError(message, hint=hint, code="bad_url")


def _no_scheme(url: str) -> ConfigurationError:
    """Return the error for a URL without a scheme. Its text quotes a file's path at most: other parts may be secret."""
    name = url.partition(":")[0].lower() if ":" in url else ""
    message, hint = "The database URL does not begin with the name of a database and ://.", f"Use {_forms()}."
    if url[0] in QUOTES:
        message = f"The database URL begins with a quote, {url[0]}, which is part of it."
        hint = (
            "Leave the quotes out: not every file of variables takes them off. It begins with, for example, sqlite:///."
        )
    elif form := KNOWN.get(SYNONYMS.get(name, name)):
        message, hint = f"The database URL begins with {name!r}, but no // follows.", f"Write it as {form}."
    elif _FILE.fullmatch(url):
        hint = f"For this SQLite file write sqlite:///{quote(os.path.expanduser(url))}. Otherwise use {_forms()}."
    return ConfigurationError(message, hint=hint, code="bad_url")


def unknown_scheme(name: str) -> ConfigurationError:
    """Return the error for an unknown kind of database.

    Its hint names a known kind that is spelled similarly, if any.
    """
    meant = difflib.get_close_matches(name, [*KNOWN, *SYNONYMS], n=1, cutoff=0.85)
    form = KNOWN[SYNONYMS.get(meant[0], meant[0])] if meant else ""
    hint = f"Did you mean {form}? The databases are: {_forms()}." if form else f"Use {_forms()}."
    message = f"{name + '://'!r} names no database that fencehold knows."
    if not name:
        message = "The database URL has nothing before its ://."
    return ConfigurationError(message, hint=hint, code="bad_url")


def _forms() -> str:
    *most, last = (form for name, form in KNOWN.items() if name != "memory")  # which is no database
    return f"{', '.join(most)} or {last}"


def label(url: str) -> str:
    """Return the URL without anything secret, for messages; for SQLite with the absolute path of the file."""
    if scheme(url) == "sqlite":
        return f"sqlite:///{sqlite_file(url)}"
    try:
        parts = urlsplit(url)
        host = _hosts(parts.netloc) or f"{parts.hostname or ''}{f':{parts.port}' if parts.port else ''}"
    except ValueError:
        return f"{url.partition('://')[0]}://..."
    return f"{parts.scheme}://{host}{parts.path}"


def _hosts(place: str) -> str:
    """Return the hosts with their ports as text if the URL names several hosts.

    Returns an empty text for a single host, or if a part of the list may be something else than a host.
    """
    hosts = place.rpartition("@")[2].split(",")
    return ",".join(hosts) if len(hosts) > 1 and all(map(_HOST.fullmatch, hosts)) else ""


def sqlite_file(url: str) -> str:
    """Return the absolute path of the file that a SQLite URL names; a relative path starts in the current folder."""
    rest = url.partition("://")[2]
    path = unquote(rest.partition("?")[0].removeprefix("/"))
    if not rest.startswith("/") or path in ("", ":memory:") or "\0" in path:
        in_memory = "; for a store in memory, memory://name" if path == ":memory:" else ""
        raise ConfigurationError(
            f"{url!r} names no SQLite file.",
            hint=f"Use sqlite:///relative.db or sqlite:////absolute/path.db{in_memory}.",
            code="bad_url",
        )
    try:
        return os.path.abspath(path)
    except FileNotFoundError:
        message = f"{path!r} is a relative path, and the folder in which this program runs is gone."
        raise ConfigurationError(message, hint="Use sqlite:////absolute/path.db.", code="bad_url") from None


def _sqlite(url: str, table: str, facts: FactSink | None) -> Callable[[], Backend]:
    path = sqlite_file(url)  # now: a process that changes its folder later must not find another file
    query = url.partition("?")[2]
    is_any = query == ANY_FILE_SYSTEM
    if query and not is_any:
        message = f"{query!r:.80} is no parameter of a SQLite URL."
        hint = f"The only one is ?{ANY_FILE_SYSTEM}; a ? in the file's name is written %3F."
        raise ConfigurationError(message, hint=hint, code="bad_url")
    if "." in table:
        raise ConfigurationError("SQLite has no schemas.", hint="Use a table name without a dot.", code="bad_name")
    from fencehold.backends.sqlite.backend import SqliteBackend

    return lambda: SqliteBackend(path, table, facts=facts, any_file_system=is_any)


def _postgres(url: str, table: str, facts: FactSink | None, durable: Durable | None) -> Callable[[], Backend]:
    module = _with_extra("fencehold.backends.postgres.backend", "postgres", "psycopg")
    plain = "postgresql://" + url.partition("://")[2]
    module.PostgresBackend.check(plain)
    unread = module.PostgresBackend.unread(facts)
    commits = module.Replicated(durable, facts) if durable is not None else None  # shared: it warns once
    return lambda: module.PostgresBackend(plain, table, unread, commits)


def _sqlserver(url: str, table: str, facts: FactSink | None) -> Callable[[], Backend]:
    module = _with_extra("fencehold.backends.sqlserver.backend", "sqlserver", "mssql_python")
    address = module.Address.of(url)
    return lambda: module.SqlServerBackend(address, table, facts=facts)


def _memory(url: str) -> Callable[[], Backend]:
    from fencehold.backends.memory.backend import MemoryBackend, shelf

    return lambda: MemoryBackend(shelf(url.partition("://")[2]))


def _cosmos(url: str, table: str, facts: FactSink | None) -> Callable[[], Backend]:
    module = _with_extra("fencehold.backends.cosmos.backend", "cosmos", "azure", "aiohttp")
    address = module.CosmosBackend.check(url)
    return lambda: module.CosmosBackend(address, table, facts=facts)


def _with_extra(module: str, extra: str, *drivers: str) -> Any:
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing in drivers:
            raise ConfigurationError(
                f"The driver {missing} is not installed.", hint=f"pip install 'fencehold[{extra}]'", code="no_driver"
            ) from None
        raise
