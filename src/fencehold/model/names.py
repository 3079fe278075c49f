"""Checks the names of leases, holders, items, locks and tables, before anything is sent."""

from __future__ import annotations

import os
import re
import secrets
import socket
from functools import partial

from fencehold.model.errors import ConfigurationError

LEASE_NAME_CHARS_MAX = 64
HOLDER_ID_CHARS_MAX = 128
ITEM_KIND_CHARS_MAX = ITEM_STATE_CHARS_MAX = 128
ITEM_ID_CHARS_MAX = 256
QUOTED_CHARS_MAX = 80
QUALIFIED_NAME_BYTES_MAX = 63  # with its schema it is also the name of a PostgreSQL channel
LOCK_NAME_UNITS_MAX = 255  # SQL Server cuts off the rest of an application lock's name, without an error
TABLE_NAME_BYTES_MAX = 48  # leaves room for the suffixes of index and trigger names below PostgreSQL's 63 bytes

#: Reserved by a database: objects of SQLite; schemas of PostgreSQL; schemas of SQL Server and PostgreSQL.
RESERVED_TABLE_PREFIX = "sqlite_"
RESERVED_SCHEMA_PREFIX = "pg_"
RESERVED_SCHEMAS = ("information_schema", "sys")

_TABLE = re.compile(r"(?:[a-z_][a-z0-9_]{0,62}\.)?[a-z_][a-z0-9_]*", re.ASCII)


def lock_name(name: object) -> str:
    """Return `name` if an application lock can have all of it as its name. Raises ConfigurationError if not."""
    text = _text(name, "lock name", LOCK_NAME_UNITS_MAX)
    beyond = sum(ord(c) > 0xFFFF for c in text)  # two units each
    return _text(text, "lock name", LOCK_NAME_UNITS_MAX - beyond) if beyond else text


def default_holder_id() -> str:
    """Return a new holder id: hostname-pid-random.

    Two processes never have the same one, even if one was restarted under the same pid.
    """
    tail = f"-{os.getpid()}-{secrets.token_hex(4)}"
    host = "".join(c for c in socket.gethostname() if c.isprintable()) or "host"
    return host[: HOLDER_ID_CHARS_MAX - len(tail)] + tail


def table_name(name: object) -> str:
    """Return `name` if it is an identifier (or schema.identifier) that means the same in every dialect of SQL.

    Raises ConfigurationError if not.
    """
    if isinstance(name, str) and _TABLE.fullmatch(name):
        fits = len(name) <= QUALIFIED_NAME_BYTES_MAX and len(name.rpartition(".")[2]) <= TABLE_NAME_BYTES_MAX
        if fits:
            _must_be_free(name)
            return name
    raise ConfigurationError(
        f"{name!r} cannot be a table name.",
        hint=f"Use lower-case letters, digits and _, at most {TABLE_NAME_BYTES_MAX} of them, optionally schema.table "
        f"({QUALIFIED_NAME_BYTES_MAX} in all).",
        code="bad_name",
    )


def _must_be_free(name: str) -> None:
    """Raise ConfigurationError, on every database, for a name that one of the databases reserves.

    The error of the database itself would look like an outage.
    """
    schema, _, table = name.rpartition(".")
    whose = ""
    if table.startswith(RESERVED_TABLE_PREFIX):
        whose = f"SQLite keeps names that begin with {RESERVED_TABLE_PREFIX} for itself"
    elif schema.startswith(RESERVED_SCHEMA_PREFIX):
        whose = f"PostgreSQL keeps schemas that begin with {RESERVED_SCHEMA_PREFIX} for itself"
    elif schema in RESERVED_SCHEMAS:
        whose = f"the schema {schema} is the database's own"
    if whose:
        hint = "Give it another name: the same ones are refused on every database."
        raise ConfigurationError(f"{name!r} cannot be a table name: {whose}.", hint=hint, code="bad_name")


def quoted(value: object) -> str:
    """Return repr(value). If it is long, its middle is cut out, so that it still ends with its quote."""
    text = repr(value)
    return text if len(text) <= QUOTED_CHARS_MAX else f"{text[: QUOTED_CHARS_MAX - 4]}...{text[-1]}"


def _text(value: object, what: str, chars_max: int) -> str:
    if not isinstance(value, str):
        problem = f"is a {type(value).__name__}, not text"
    elif not value:
        problem = "is empty"
    elif len(value) > chars_max:
        problem = f"has {len(value)} characters; the column holds {chars_max}"
    elif any(ord(c) < 32 or ord(c) == 127 or 0xD800 <= ord(c) <= 0xDFFF for c in value):
        problem = "has control characters or lone surrogates"
    elif value != value.strip():
        problem = "begins or ends with a blank, which some databases drop"
    else:
        return value
    raise ConfigurationError(
        f"{what} {quoted(value)} {problem}.",
        hint=f"Use 1 to {chars_max} printable characters without a blank at either end.",
        code="bad_name",
    )


#: Each returns the name itself if every backend stores it unchanged, else it raises ConfigurationError.
lease_name = partial(_text, what="lease name", chars_max=LEASE_NAME_CHARS_MAX)
holder_id = partial(_text, what="holder_id", chars_max=HOLDER_ID_CHARS_MAX)
consumer_id = partial(_text, what="consumer_id", chars_max=HOLDER_ID_CHARS_MAX)
item_kind = partial(_text, what="item kind", chars_max=ITEM_KIND_CHARS_MAX)
item_id = partial(_text, what="item id", chars_max=ITEM_ID_CHARS_MAX)
item_state = partial(_text, what="item state", chars_max=ITEM_STATE_CHARS_MAX)
