"""Connections that would store other text than the library's own, or give text as bytes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg

from fencehold.backends.sql.callers.connections import Params, Rows
from fencehold.model.errors import ConfigurationError

KEEPS_UTF8 = ("UTF8", "SQL_ASCII")


def must_keep_text(connection: object, values: Params) -> None:
    """Raise ConfigurationError if the database would store these values as other text than from our own connections.

    If one side is SQL_ASCII nothing is converted: the bytes are kept as they are. psycopg sends UTF8 to such a client.
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
    """Raise ConfigurationError for the driver's own refusal of a character that the connection's encoding lacks."""
    try:
        yield
    except UnicodeEncodeError as error:
        raise ConfigurationError(
            f"The connection's encoding ({error.encoding}) has no {error.object[error.start]!r}; nothing was written.",
            hint="Connect with client_encoding=utf8.",
            code="not_in_encoding",
        ) from None


def readable(rows: Rows) -> Rows:
    """Return text as text: on a connection in SQL_ASCII psycopg gives bytes for it."""
    return [tuple(value.decode() if isinstance(value, bytes) else value for value in row) for row in rows]
