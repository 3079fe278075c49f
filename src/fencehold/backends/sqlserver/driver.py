"""The driver, set up once per process: which of its two native libraries it loads, and that it keeps no pool."""

from __future__ import annotations

import ctypes
import os
import sys
import threading
import warnings

import mssql_python
from mssql_python.pooling import PoolingManager

from fencehold.backends.sqlserver.address import Address, unreadable
from fencehold.model.errors import ConfigurationError

#: The driver's default is the older and better known of its two native libraries, but on Linux it needs these of the
#: system's, which a fresh machine lacks; the other one needs nothing but the driver's own wheels.
NEEDED_BY_DEFAULT = ("libltdl.so.7", "libkrb5.so.3", "libgssapi_krb5.so.2")
SELF_CONTAINED_PROVIDER = "mssql-odbc"
PROVIDER_VARIABLE = "MSSQL_PYTHON_NATIVE_PROVIDER"

Connection = mssql_python.Connection
Error = mssql_python.Error
DataError = mssql_python.DataError
IntegrityError = mssql_python.IntegrityError

_lock = threading.Lock()
_is_set_up = False


def set_up() -> None:
    """Before the first connection. What the program or its environment has chosen already is left as it is."""
    global _is_set_up
    with _lock:
        if _is_set_up:
            return
        _is_set_up = True
        if not os.environ.get(PROVIDER_VARIABLE) and not is_default_usable():
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # a connection was made before: the choice is frozen, and works
                setattr(mssql_python, "native_provider", SELF_CONTAINED_PROVIDER)  # noqa: B010 - not in its types
        if not PoolingManager.is_initialized():
            # A pool keeps a closed connection's session, and its locks, for another ten minutes.
            mssql_python.pooling(enabled=False)


def is_default_usable() -> bool:
    """Whether this machine has what the driver's default provider needs."""
    if not sys.platform.startswith("linux"):
        return True
    try:
        for name in NEEDED_BY_DEFAULT:
            ctypes.CDLL(name)
    except OSError:
        return False
    return True


def is_pooled() -> bool:
    """Whether the program has turned the driver's pool on, so that a closed connection goes on living."""
    return PoolingManager.is_enabled()


def connect(address: Address, *, limit_s: int, autocommit: bool = True) -> Connection:
    """Open, in the calling thread. `limit_s` bounds the login, not a peer that stops answering in the midst of it."""
    set_up()
    try:
        connection = mssql_python.connect(address.connection_string(), autocommit=autocommit, timeout=limit_s)
    except mssql_python.ConnectionStringParseError:
        raise unreadable() from None
    # At exit the driver closes what it knows of, also under a call that hangs: the process would end by SIGABRT.
    getattr(mssql_python, "_active_connections", set()).discard(connection)
    return connection


def without_ends(connection: Connection) -> None:
    """In autocommit the driver's own commit and rollback do nothing and say nothing; on this connection they say so."""

    def refuse() -> None:
        raise ConfigurationError(
            "The transaction's own connection can neither commit nor roll back; nothing was done.",
            hint="`term.transaction()` does both: leave its block, with an error to have it rolled back.",
            code="fence_gone",
        )

    connection.__dict__.update(commit=refuse, rollback=refuse)
