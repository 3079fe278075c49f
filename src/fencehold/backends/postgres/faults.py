"""The one place that sorts psycopg's errors: executed, not executed, or unknown."""

from __future__ import annotations

import psycopg
from psycopg import errors as pg

from fencehold.model.errors import ConfigurationError, FenceholdError, Unavailable, Uncertain, redact

INIT_HINT = "Create the tables with `await store.init()` or `fencehold init` (`fencehold sql init` prints the SQL)."
OWNER_HINT = (
    "A role that owns the schema must run `fencehold init` (`fencehold sql init` prints the SQL and the GRANTs); on "
    "tables that are up to date this role needs only SELECT on fencehold_schema."
)
_UNKNOWN_OUTCOME_CLASSES = ("08", "57")  # the connection went away: the statement may have been committed before it did

_LOGIN = (
    ("password authentication failed", "login_refused", "Check user and password."),
    ("no password supplied", "login_refused", "Give a password in the URL, in PGPASSWORD or in ~/.pgpass."),
    ("no pg_hba.conf entry", "login_refused", "The server's pg_hba.conf does not let this user in from here."),
    ("role ", "login_refused", "Check the user name."),
    ("database ", "no_such_database", "Create the database or correct its name."),
    ("session is read-only", "read_only", "This is a replica: name the primary, or list all hosts in the URL."),
    ("server is in hot standby", "read_only", "This is a replica: name the primary, or list all hosts in the URL."),
)


def of_connect(error: Exception) -> FenceholdError:
    """Nothing was sent yet, so nothing was changed."""
    text = redact(" ".join(str(error).split()))
    for part, code, hint in _LOGIN:
        if part in text and (code == "read_only" or "does not exist" in text or part not in ("role ", "database ")):
            return Unavailable(f"PostgreSQL refused the connection: {text}.", hint=hint, code=code)
    return Unavailable(
        f"PostgreSQL cannot be reached: {text or type(error).__name__}.",
        hint="Check host, port and network, and that the server runs.",
        code="unreachable",
    )


def of_statement(error: psycopg.Error) -> FenceholdError:
    """The server's answer, or the lack of one, to a statement that was sent."""
    text = redact(" ".join(str(error).split()))
    state = error.sqlstate
    if isinstance(error, (pg.UndefinedTable, pg.UndefinedColumn, pg.InvalidSchemaName)):
        return ConfigurationError(f"A table is missing or old: {text}.", hint=INIT_HINT, code="schema_missing")
    if isinstance(error, pg.InsufficientPrivilege):
        hint = "GRANT this user what `fencehold sql init` prints (purge also needs DELETE on an outbox)."
        return ConfigurationError(f"PostgreSQL refused: {text}.", hint=hint, code="no_permission")
    if isinstance(error, pg.ReadOnlySqlTransaction):
        hint = "Name the primary, or list all hosts in the URL."
        return Unavailable(f"This server is a read-only replica: {text}.", hint=hint, code="read_only")
    if is_connection_lost(error):
        hint = "It counts as lost until the store says otherwise."
        return Uncertain(f"PostgreSQL gave no answer: {text or type(error).__name__}.", hint=hint, code="no_answer")
    return Unavailable(f"PostgreSQL refused the statement ({state}): {text}.", code="store_error")


def of_init(error: psycopg.Error) -> FenceholdError:
    """The same while tables are made: other rights are wanted then than in daily use."""
    fault = of_statement(error)
    if fault.code == "no_permission":
        fault.hint = OWNER_HINT
    return fault


def is_connection_lost(error: psycopg.Error) -> bool:
    """The session is gone, and with it the answer. A mistake in the statement itself has no SQLSTATE either."""
    if error.sqlstate is None:
        return isinstance(error, (psycopg.OperationalError, psycopg.InterfaceError))
    return error.sqlstate[:2] in _UNKNOWN_OUTCOME_CLASSES and not isinstance(error, pg.QueryCanceled)
