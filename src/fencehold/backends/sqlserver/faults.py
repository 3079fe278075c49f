"""Turns the driver's errors into ours. This is the only place that decides: executed, not executed, or unknown.

The driver gives no error numbers, only the name of the SQLSTATE (`driver_error`) and the server's text. The numbers in
the comments are the server's own error numbers.
"""

from __future__ import annotations

from fencehold.backends.sql.statements import no_permission, schema_missing, schema_old
from fencehold.backends.sqlserver import driver
from fencehold.model.errors import ConfigurationError, FenceholdError, Unavailable, Uncertain, redact

OWNER_HINT = (
    "A login that owns the schema must run `fencehold init{option}` (`fencehold sql init{option}` prints the SQL and "
    "the GRANTs); on tables that are up to date this login needs only SELECT on fencehold_schema."
)
# A database that is failing over cannot be opened either, so these are retried. The server then adds 18456.
_OUTAGES = (
    ("Cannot open database", "no_such_database", "Create the database, correct its name, or let this user in."),  # 4060
    ("does not exist", "no_such_database", "Create the database, or correct its name."),
)
_ENCRYPT_HINT = "Let the server encrypt, or on a network you trust say ?encrypt=no."
_CERTIFICATE_HINT = "Give the server a certificate this machine trusts, or see docs/sqlserver.md."
_TLS_HINT = "Check port and ?encrypt= in the URL, and which versions of TLS the two sides know."
_MISTAKES = (  # waiting does not help. A broken-off handshake is not here: a stopping server causes it too
    ("Login failed", "login_refused", "Check user and password."),  # 18456
    ("password authentication failed", "login_refused", "Check user and password."),
    ("does not support encryption", "tls_refused", _ENCRYPT_HINT),
    ("Encryption not supported", "tls_refused", _ENCRYPT_HINT),
    ("certificate verify failed", "tls_refused", _CERTIFICATE_HINT),
    ("not trusted", "tls_refused", _CERTIFICATE_HINT),
    ("principal name is incorrect", "tls_refused", _CERTIFICATE_HINT),
    ("wrong version number", "tls_refused", _TLS_HINT),
    ("unsupported protocol", "tls_refused", _TLS_HINT),
    ("SSL library could not be loaded", "tls_refused", "Install OpenSSL, or unset MSSQL_PYTHON_NATIVE_PROVIDER."),
    ("libltdl", "no_driver", "Install libltdl7, or unset MSSQL_PYTHON_NATIVE_PROVIDER."),
)
_MISSING = (
    "Invalid object name",  # 208
    "does not exist",
    "Could not find stored procedure",
)
_CURSOR_OPEN = "busy with results"
_LOST = ("link failure", "not open", "closed connection", "connection is closed", "broken", "IO error", "TCP Provider")


def of_connect(error: Exception) -> FenceholdError:
    """Return our error for a failed connect. Nothing was sent yet, so nothing was changed."""
    text = text_of(error)
    if found := _found(text, _OUTAGES):
        return Unavailable(f"SQL Server refused the connection: {text}.", hint=found[1], code=found[0])
    if found := _found(text, _MISTAKES):
        return ConfigurationError(f"SQL Server refused the connection: {text}.", hint=found[1], code=found[0])
    return Unavailable(
        f"SQL Server cannot be reached: {text or type(error).__name__}.",
        hint="Check host, port and network, and that the server runs.",
        code="unreachable",
    )


def _found(text: str, table: tuple[tuple[str, str, str], ...]) -> tuple[str, str] | None:
    return next(((code, hint) for part, code, hint in table if part in text), None)


def of_statement(error: Exception) -> FenceholdError:
    """Return our error for a driver's error after a batch was sent: the server refused it, or did not answer."""
    text = text_of(error)
    return _not_executed(error, text) or _misfit(text) or _unknown(error, text)


def _not_executed(error: Exception, text: str) -> FenceholdError | None:
    said = f"SQL Server: {text}; nothing was changed."
    if is_lock_timeout(error):
        return Unavailable(
            said, hint="Another session kept the row locked; keep transactions on these tables short.", code="busy"
        )
    if is_deadlock(error):
        return Unavailable(said, code="busy")
    if isinstance(error, driver.IntegrityError) and "duplicate key" in text.lower():  # 2627, 2601
        return Unavailable(said, code="conflict")
    if is_cursor_open(error):
        return ConfigurationError(
            f"SQL Server: {text}; nothing was sent.",
            hint="Read the cursor to its end, or close it, before anything else is done on its connection.",
            code="cursor_open",
        )
    if "specified schema name" in text:  # 2760
        return ConfigurationError(
            f"SQL Server: {text}.",
            hint="Create it first (CREATE SCHEMA), let this user use it, or correct the name of the table.",
            code="no_such_schema",
        )
    return None


def _misfit(text: str) -> FenceholdError | None:
    if "permission" in text.lower() and "denied" in text.lower():  # 229, 230, 262
        return no_permission(f"SQL Server refused: {text}.")
    if "OPENJSON" in text:  # 208, too
        said = f"The database's compatibility level is too low: {text}."
        return ConfigurationError(
            said,
            hint="ALTER DATABASE ... SET COMPATIBILITY_LEVEL = 130 or higher (SQL Server 2016).",
            code="old_database",
        )
    if "Invalid column name" in text:  # 207
        return schema_old(text)
    if any(part in text for part in _MISSING):
        return schema_missing(f"A table is missing: {text}.")
    if "read-only" in text:  # 3906
        return Unavailable(
            f"This database is read-only: {text}.",
            hint="Name the primary, for example the availability group's listener.",
            code="read_only",
        )
    return None


def _unknown(error: Exception, text: str) -> FenceholdError:
    if is_connection_lost(error) or is_time_out(error):
        said = f"SQL Server gave no answer: {text or type(error).__name__}."
        return Uncertain(said, hint="It counts as lost until the store says otherwise.", code="no_answer")
    return Unavailable(f"SQL Server refused the statement: {text}.", code="store_error")


def of_callers(error: BaseException) -> BaseException:
    """Return our error for a driver's error on the caller's connection; any other error is returned unchanged.

    A driver's error inside an error of SQLAlchemy is found too.
    """
    cause = getattr(error, "orig", error)
    if not isinstance(cause, driver.Error):
        return error
    if "closed connection" in text_of(cause):
        return ConfigurationError(
            "The connection that was given is closed; nothing was written.", code="bad_connection"
        )
    if is_deadlock(cause):
        hint = "Begin it again, from its first statement."
        return Unavailable(f"SQL Server: {text_of(cause)}; your transaction was rolled back.", hint=hint, code="busy")
    return of_statement(cause)


def of_init(error: Exception, init_option: str = "") -> FenceholdError:
    """Return our error for a driver's error while tables are made, as `of_statement` does.

    For a missing right its hint names the rights that making tables needs; daily use needs fewer.
    """
    fault = of_statement(error)
    if fault.code == "no_permission":
        fault.hint = OWNER_HINT.format(option=init_option)
    return fault


def is_deadlock(error: Exception) -> bool:
    """Return whether the server ended this batch to resolve a deadlock (error 1205).

    Its whole transaction was rolled back.
    """
    return "Serialization failure" in _state(error) or "deadlock" in text_of(error).lower()


def is_cursor_open(error: Exception) -> bool:
    """Return whether the driver itself refused: the connection has unread results, or a statement is in progress."""
    return _CURSOR_OPEN in text_of(error)


def is_lock_timeout(error: Exception) -> bool:
    """Return whether the wait for a lock was longer than LOCK_TIMEOUT (error 1222).

    With XACT_ABORT on, the server has then rolled the whole transaction back.
    """
    text = text_of(error).lower()
    return "lock request time out" in text or "lock timeout" in text


def is_time_out(error: Exception) -> bool:
    """Return whether the driver's limit for the statement was over.

    The driver then asked the server to stop, but the server may already have finished.
    """
    return "imeout expired" in _state(error) or "timed out" in text_of(error).lower()


def is_connection_lost(error: Exception) -> bool:
    """Return whether the connection broke. The server's answer is then lost too."""
    state = _state(error)
    if is_cursor_open(error):
        return False
    if "onnection" in state or "ommunication" in state or "General error" in state:
        return True
    text = text_of(error)
    return any(part in text for part in _LOST)


def text_of(error: Exception) -> str:
    """Return the server's message on one line, without the driver's own prefix and without secrets."""
    said = getattr(error, "ddbc_error", "") or str(error)
    return redact(" ".join(said.replace("[Microsoft]", "").split())).rstrip(".")


def _state(error: Exception) -> str:
    return str(getattr(error, "driver_error", ""))
