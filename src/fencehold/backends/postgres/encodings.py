"""Guards against connections whose encoding would store another text than ours, or that give text as bytes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg

from fencehold.backends.sql.callers.connections import Params, Rows
from fencehold.model.errors import ConfigurationError

KEEPS_UTF8 = ("UTF8", "SQL_ASCII")


def must_keep_text(connection: object, values: Params) -> None:
    """Raise ConfigurationError (bad_encoding) if text sent on this connection would be stored with other characters.

    If the server or the client is set to SQL_ASCII, the server converts nothing and stores the bytes as they come.
    psycopg sends UTF8 on a connection in SQL_ASCII, so this is safe only if both sides are UTF8 or SQL_ASCII. Without
    `values`, and for other drivers, nothing is checked.
    """
    if not values or not isinstance(connection, psycopg.Connection | psycopg.AsyncConnection):
        return
    stored, sent = (connection.info.parameter_status(f"{side}_encoding") for side in ("server", "client"))
    bytes_as_they_are = "SQL_ASCII" in (stored, sent)
    if bytes_as_they_are and not (stored in KEEPS_UTF8 and sent in KEEPS_UTF8):
        raise ConfigurationError(
            f"This database is in {stored} and the connection in {sent}, and nobody converts the one into the other: "
            "text would be stored as other text than fencehold's own. Nothing was written.",
            hint="Connect with client_encoding=utf8.",
            code="bad_encoding",
        )


@contextmanager
def text_must_fit() -> Iterator[None]:
    """Raise ConfigurationError (not_in_encoding) if, in the block, the driver cannot encode a character of a text.

    That is a UnicodeEncodeError of psycopg: the connection's encoding has no such character. Nothing was sent.
    """
    try:
        yield
    except UnicodeEncodeError as error:
        raise ConfigurationError(
            f"The connection's encoding ({error.encoding}) has no {error.object[error.start]!r}; nothing was written.",
            hint="Connect with client_encoding=utf8.",
            code="not_in_encoding",
        ) from None


def readable(rows: Rows) -> Rows:
    """Return the rows with every bytes value decoded as UTF-8.

    On a connection in SQL_ASCII psycopg gives bytes for text.
    """
    return [tuple(value.decode() if isinstance(value, bytes) else value for value in row) for row in rows]
