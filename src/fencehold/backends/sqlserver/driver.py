"""The driver, set up once per process: which of its two native libraries it loads, and that it keeps no pool."""

from __future__ import annotations

import os
import threading
import warnings

import mssql_python
from mssql_python.pooling import PoolingManager

from fencehold.backends.sqlserver.address import Address

#: Needs nothing but the driver's own wheels; the driver's default also needs libltdl7 and Kerberos libraries.
PROVIDER = "mssql-odbc"
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
        if not os.environ.get(PROVIDER_VARIABLE):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # a connection was made before: the choice is frozen, and works
                setattr(mssql_python, "native_provider", PROVIDER)  # noqa: B010 - the driver's types leave it out
        if not PoolingManager.is_initialized():
            # A pool keeps a closed connection's session, and its locks, for another ten minutes.
            mssql_python.pooling(enabled=False)


def is_pooled() -> bool:
    """Whether the program has turned the driver's pool on, so that a closed connection goes on living."""
    return PoolingManager.is_enabled()


def connect(address: Address, *, autocommit: bool, limit_s: int) -> Connection:
    """Open, in the calling thread. `limit_s` bounds the login, not a peer that stops answering in the midst of it."""
    set_up()
    connection = mssql_python.connect(address.connection_string(), autocommit=autocommit, timeout=limit_s)
    # At exit the driver closes what it knows of, also under a call that hangs: the process would end by SIGABRT.
    getattr(mssql_python, "_active_connections", set()).discard(connection)
    return connection
