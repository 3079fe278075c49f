"""Sets the driver up once per process: chooses which of its two native libraries it loads, and turns its pool off."""

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

#: By default the driver loads the older and better known of its two native libraries. On Linux it needs these system
#: libraries, which a fresh machine lacks; the other one needs nothing but the driver's own wheels.
NEEDED_BY_DEFAULT = ("libltdl.so.7", "libkrb5.so.3", "libgssapi_krb5.so.2")
SELF_CONTAINED_PROVIDER = "mssql-odbc"
PROVIDER_VARIABLE = "MSSQL_PYTHON_NATIVE_PROVIDER"

Connection = mssql_python.Connection
Cursor = mssql_python.Cursor
Error = mssql_python.Error
DataError = mssql_python.DataError
IntegrityError = mssql_python.IntegrityError

_lock = threading.Lock()
_is_set_up = False


def set_up() -> None:
    """Choose the driver's native library and turn its pool off, before the first connection.

    A choice that the program or its environment has made already is kept.
    """
    global _is_set_up
    with _lock:
        if _is_set_up:
            return
        _is_set_up = True
        if not os.environ.get(PROVIDER_VARIABLE) and not is_default_usable():
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # a connection exists already: the choice is fixed, and works
                setattr(mssql_python, "native_provider", SELF_CONTAINED_PROVIDER)  # noqa: B010 - not in its types
        if not PoolingManager.is_initialized():
            # A pool keeps a closed connection's session, and its locks, for another ten minutes.
            mssql_python.pooling(enabled=False)


def is_default_usable() -> bool:
    """Return whether this machine has the system libraries that the driver's default native library needs."""
    if not sys.platform.startswith("linux"):
        return True
    try:
        for name in NEEDED_BY_DEFAULT:
            ctypes.CDLL(name)
    except OSError:
        return False
    return True


def is_pooled() -> bool:
    """Return whether the program has turned the driver's pool on.

    In a pool the session of a closed connection stays alive.
    """
    return PoolingManager.is_enabled()


def connect(address: Address, *, limit_s: int, autocommit: bool = True) -> Connection:
    """Open a connection in the calling thread. Raises the driver's errors.

    `limit_s` limits the login, but not if the server stops answering in the middle of it.
    """
    set_up()
    try:
        connection = mssql_python.connect(address.connection_string(), autocommit=autocommit, timeout=limit_s)
    except mssql_python.ConnectionStringParseError:
        raise unreadable() from None
    # At exit the driver closes all connections it knows, even during a call that hangs: that would end in SIGABRT.
    getattr(mssql_python, "_active_connections", set()).discard(connection)
    return connection


def without_ends(connection: Connection) -> None:
    """Make commit() and rollback() raise: in autocommit mode the driver ignores them silently."""

    def refuse() -> None:
        raise ConfigurationError(
            "The transaction's own connection can neither commit nor roll back; nothing was done.",
            hint="`term.transaction()` does both: leave its block, with an error to have it rolled back.",
            code="fence_gone",
        )

    connection.__dict__.update(commit=refuse, rollback=refuse)
