"""Turns psycopg's errors into ours, in this one place: was the statement executed, not executed, or is it unknown?"""

from __future__ import annotations

import re
from collections.abc import Sequence

import psycopg
from psycopg import errors as pg

from fencehold.backends.sql.statements import no_permission, schema_missing, schema_old
from fencehold.model.errors import ConfigurationError, FenceholdError, Unavailable, Uncertain, redact

OWNER_HINT = (
    "A role that owns the schema must run `fencehold init{option}` (`fencehold sql init{option}` prints the SQL and "
    "the GRANTs); on tables that are up to date this role needs only SELECT on fencehold_schema."
)
SCHEMA_HINT = (
    "GRANT USAGE, CREATE ON SCHEMA ... TO this role (USAGE alone once the tables are there), or name a schema it may "
    "use: --table schema.fencehold_leases."
)
POLICY_HINT = (
    "Row-level security is on for this table, and no policy lets this user do that; a GRANT does not help. Give it one "
    "for all rows (CREATE POLICY ... TO ... USING (true) WITH CHECK (true)), or ALTER TABLE ... DISABLE ROW LEVEL "
    "SECURITY."
)
LOGIN_HINT = "Check user and password."
DATABASE_HINT = "Create the database, or correct its name."
REPLICA_HINT = "This is a replica: name the primary, or list all hosts in the URL."
SETTING_HINT = (
    "default_transaction_read_only is on for this server, database or role (a read-only time of its operators, say): "
    "set it to off, for example ALTER ROLE ... SET default_transaction_read_only = off."
)
STANDBY = "session is read-only (a standby, or default_transaction_read_only is on)"
FAILOVER_HINT = "None that answered takes writes: a failover may be under way, and a new primary be chosen soon."
READ_ONLY_HINT = (
    "Either this is a replica: name the primary, or list all hosts in the URL. Or default_transaction_read_only is on "
    "for this server, database or role: set it to off."
)
TIMEOUT_HINT = "A limit set for this role or database is shorter than the statement takes: `fencehold doctor` shows it."
CANCELED_HINT = "An operator, or a program of theirs, cancelled it (pg_cancel_backend)."
BLOCKERS = "pg_blocking_pids(pid) in pg_stat_activity names the session that has it."
LOCKED_HINT = f"Another session has locked what it needs: {BLOCKERS}"
OWN_LIMIT_HINT = (
    f"The limit is fencehold's own, {{:g}} s in this transaction; most likely another session has a lock: {BLOCKERS}"
)
_UNKNOWN_OUTCOME_CLASSES = ("08", "57")  # the connection was lost: the statement may have been committed before

# libpq gives no SQLSTATE for a refused connection, only the server's message. It is in English unless the server's own
# lc_messages is another language; what is not recognized counts as an outage, which is retried and shown.
_MISTAKES = (  # 28xxx, 3D000, 42501, and mistakes in the URL itself: waiting does not help
    (re.compile("no password supplied"), "login_refused", "Give a password in the URL, in PGPASSWORD or in ~/.pgpass."),
    (re.compile("pg_hba.conf"), "login_refused", "The server's pg_hba.conf does not let this user in from here."),
    (re.compile("authentication failed"), "login_refused", LOGIN_HINT),
    (re.compile("is not permitted to log in"), "login_refused", "The role needs LOGIN."),
    (re.compile('role ".*" does not exist|no such user'), "login_refused", "Check the user name."),
    (re.compile('database ".*" does not exist|no such database'), "no_such_database", DATABASE_HINT),
    (re.compile("permission denied for database"), "no_permission", "The role needs CONNECT on the database."),
    (re.compile("does not support SSL|certificate verify failed|root certificate file"), "tls_refused",
     "Check sslmode and sslrootcert in the URL, and the server's certificate."),
    (re.compile(r"invalid \w+ (value|number)"), "bad_url", "Correct this parameter of the URL."),
)  # fmt: skip
_OUTAGES = (
    (re.compile("session is read-only|hot standby"), "read_only", READ_ONLY_HINT),
    (re.compile("too many (clients|connections)|connection slots are reserved"), "too_many_connections",
     "Close connections that are not needed, or raise max_connections (or the role's own limit)."),
    (re.compile("starting up|shutting down|recovery mode|not (yet )?accepting connections"), "starting",
     "The server is starting or stopping: try again."),
)  # fmt: skip


class GivenUp(psycopg.OperationalError):
    """The error after we have shut a connection's socket down because the time was over.

    It replaces the driver's own error, which would say that the server closed the connection.
    """

    def __init__(self, waited_s: float) -> None:
        super().__init__(f"the server did not answer within {waited_s:.1f} s, so the connection was given up")


def of_connect(*errors: Exception, host_count: int = 1) -> FenceholdError:
    """Return our error for the errors of all attempts to connect; nothing was sent, so nothing was changed.

    ConfigurationError (login_refused, no_such_database and others) if every server refused for a reason that waiting
    cannot change; else Unavailable. One host may have several errors: it has several addresses, or was tried again.
    """
    texts = texts_of(errors)
    said = "; ".join(texts)
    mistakes = [_found(text, _MISTAKES) for text in texts]
    if all(mistakes) and (found := mistakes[0]):
        code, hint = found
        return ConfigurationError(f"PostgreSQL refused the connection: {said}.", hint=hint, code=code)
    if found := next(filter(None, (_found(text, _OUTAGES) for text in texts)), None):
        code, hint = found
        if code == "read_only" and host_count > 1:
            hint = FAILOVER_HINT
        return Unavailable(f"PostgreSQL refused the connection: {said}.", hint=hint, code=code)
    return Unavailable(
        f"PostgreSQL cannot be reached: {said}.",
        hint="Check host, port and network, and that the server runs.",
        code="unreachable",
    )


def _found(text: str, table: tuple[tuple[re.Pattern[str], str, str], ...]) -> tuple[str, str] | None:
    return next(((code, hint) for part, code, hint in table if part.search(text)), None)


def text_of(error: Exception) -> str:
    """Return the error's message on one line, without secrets; the name of its class if there is no message."""
    return redact(" ".join(str(error).split())).rstrip(".") or type(error).__name__


def texts_of(errors: Sequence[Exception]) -> list[str]:
    """Return the message of each error, equal messages once.

    libpq only says "session is read-only"; here the message adds that the server may be a standby.
    """
    texts = (text_of(error).replace("session is read-only", STANDBY) for error in errors)
    return list(dict.fromkeys(texts))


def of_statement(error: psycopg.Error) -> FenceholdError:
    """Return our error for psycopg's error of a statement that was sent.

    ConfigurationError for a mistake, Unavailable if the statement was not executed, Uncertain if no answer came.
    """
    text = text_of(error)
    found = _mistake(error, text) or _refused_login(error, text) or _not_executed(error, text)
    return found or _unknown(error, text)


def of_fenced(error: psycopg.Error, limit_s: float) -> FenceholdError:
    """Return our error as `of_statement` does, for a statement of a fenced transaction, whose time limit was `limit_s`.

    The hint about a timeout names this limit, which the fence had set, and not a limit of the role.
    """
    fault = of_statement(error)
    if fault.hint == TIMEOUT_HINT:
        fault.hint = OWN_LIMIT_HINT.format(limit_s)
    return fault


def _mistake(error: psycopg.Error, text: str) -> FenceholdError | None:
    """Return our error for a mistake, which waiting cannot change, such as a missing table; None for other errors."""
    if isinstance(error, pg.InvalidSchemaName):
        return _no_schema(text)
    if isinstance(error, pg.UndefinedTable):
        return schema_missing(f"A table is missing: {_said(text)}.")
    if isinstance(error, pg.UndefinedColumn):
        return schema_old(_said(text))
    if isinstance(error, pg.InsufficientPrivilege):
        fault = no_permission(f"PostgreSQL refused: {_said(text)}.")
        if "row-level security" in text:
            fault.hint = POLICY_HINT
        return fault
    if isinstance(error, (pg.UntranslatableCharacter, pg.CharacterNotInRepertoire)):
        hint = "The database's encoding has no such character: use others, or a database in UTF8."
        return ConfigurationError(f"PostgreSQL refused the text: {text}.", hint=hint, code="not_in_encoding")
    return None


def _said(text: str) -> str:
    """Return the message without the statement that the server quotes after " LINE ": the user did not write it."""
    return text.partition(" LINE ")[0].rstrip(".")


def no_usable_schema() -> ConfigurationError:
    message = "This role may use no schema of its search_path, so no table can be made or found."
    return ConfigurationError(message, hint=SCHEMA_HINT, code="no_permission")


def unmakeable(schema: str, init_option: str) -> ConfigurationError:
    """Return the error for missing tables that `init` by this role could not make either.

    Its message is the one with which PostgreSQL would refuse `init`: permission denied for the schema.
    """
    hint = OWNER_HINT.format(option=init_option)
    message = f"PostgreSQL refused: permission denied for schema {schema}."
    return ConfigurationError(message, hint=hint, code="no_permission")


def _no_schema(text: str) -> ConfigurationError:
    """Return the error for tables that cannot be made: the schema does not exist, or this role may use no schema."""
    if "no schema has been selected" in text:
        return no_usable_schema()
    hint = "Create it first (CREATE SCHEMA), or correct the name of the table."
    return ConfigurationError(f"PostgreSQL: {text}.", hint=hint, code="no_such_schema")


def _refused_login(error: psycopg.Error, text: str) -> FenceholdError | None:
    """Return our error if the server refused the login or has no such database; None for other errors.

    A statement can get this error behind a pooler, which logs in to the server only at the first statement.
    """
    if (error.sqlstate or "")[:2] == "28":
        return ConfigurationError(f"PostgreSQL refused the login: {text}.", hint=LOGIN_HINT, code="login_refused")
    if isinstance(error, pg.InvalidCatalogName):
        return ConfigurationError(f"PostgreSQL: {text}.", hint=DATABASE_HINT, code="no_such_database")
    return None


def _not_executed(error: psycopg.Error, text: str) -> FenceholdError | None:
    if isinstance(error, pg.ReadOnlySqlTransaction):
        return not_here(text, "", is_standby=False)
    if isinstance(error, pg.LockNotAvailable):
        return Unavailable(f"PostgreSQL: {text}; nothing was changed.", hint=LOCKED_HINT, code="locked")
    if isinstance(error, pg.QueryCanceled):
        hint = CANCELED_HINT if "user request" in text else TIMEOUT_HINT
        return Unavailable(f"PostgreSQL: {text}; nothing was changed.", hint=hint, code="canceled")
    if isinstance(error, pg.DiskFull):
        hint = "Make room on the server's disk; it is retried meanwhile."
        return Unavailable(f"PostgreSQL: {text}; nothing was changed.", hint=hint, code="disk_full")
    return None


def _unknown(error: psycopg.Error, text: str) -> FenceholdError:
    if is_connection_lost(error):
        hint = "It counts as lost until the store says otherwise."
        return Uncertain(f"PostgreSQL gave no answer: {text}.", hint=hint, code="no_answer")
    return Unavailable(f"PostgreSQL refused the statement ({error.sqlstate}): {text}.", code="store_error")


def not_here(said: str, where: str, is_standby: bool) -> Unavailable:
    """Return the error for a write that was refused because the server takes no writes (25006); nothing was executed.

    `is_standby`: the server at `where` has become a standby, so the caller looks for the primary on other hosts.
    """
    if not is_standby:
        return Unavailable(f"This session takes no writes: {said}.", hint=READ_ONLY_HINT, code="read_only")
    return Unavailable(
        f"{where} has become a standby, and takes no writes any more ({said}); nothing was changed.",
        hint="The primary is looked for among the hosts of the URL.",
        code="read_only",
    )


def denied(error: psycopg.Error, rights: Sequence[str]) -> FenceholdError:
    """Return our error for a missing right. The message lists `rights`; the server itself names only the table."""
    if not rights:
        return of_statement(error)
    return no_permission(f"PostgreSQL refused: {text_of(error)}; this user lacks {', '.join(rights)}.")


def locked(error: psycopg.Error) -> Unavailable:
    """Return Unavailable (busy): another session keeps the table locked as a whole.

    Locked single rows do not cause this error, because our statements skip them.
    """
    hint = "Find the session that has it (pg_locks), and end its transaction."
    return Unavailable(f"The table is locked by another session: {text_of(error)}.", hint=hint, code="busy")


def of_init(error: psycopg.Error, init_option: str = "") -> FenceholdError:
    """Return our error as `of_statement` does, for an error while tables are made.

    The hint about a missing right then names the rights of an owner, which daily use does not need.
    """
    fault = of_statement(error)
    if fault.code == "no_permission" and fault.hint != SCHEMA_HINT:
        fault.hint = OWNER_HINT.format(option=init_option)
    return fault


def is_elsewhere(error: psycopg.Error) -> bool:
    """Whether the server refused because it takes no writes, for example after a failover.

    Nothing was executed; another server may take writes, so this connection is of no use any more.
    """
    return isinstance(error, pg.ReadOnlySqlTransaction)


def is_unread(error: psycopg.Error) -> bool:
    """Whether the server answered that its timeline cannot be read: no such function, no right to it, no such log.

    False means that no such answer came, because the connection was lost or the statement was cancelled.
    """
    return error.sqlstate is not None and error.sqlstate[:2] not in ("08", "53", "57")


def is_connection_lost(error: psycopg.Error) -> bool:
    """Whether the connection is lost, so that no answer to the statement can come any more.

    An error without a SQLSTATE counts only if it is an OperationalError or InterfaceError: a mistake in the statement
    that the driver itself finds has no SQLSTATE either.
    """
    if error.sqlstate is None:
        return isinstance(error, (psycopg.OperationalError, psycopg.InterfaceError))
    return error.sqlstate[:2] in _UNKNOWN_OUTCOME_CLASSES and not isinstance(error, pg.QueryCanceled)
