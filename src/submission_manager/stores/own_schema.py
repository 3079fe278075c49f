"""A schema of its own in a PostgreSQL database, for a demonstration: made for one run, and dropped with all in it."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import quote

import psycopg

CONNECT_LIMIT_S = 5


@asynccontextmanager
async def own_schema(url: str) -> AsyncIterator[str]:
    """Yield a URL whose tables are in a new schema. An interrupt waits until it is dropped: nothing is left behind."""
    name = f"submission_manager_demo_{secrets.token_hex(4)}"
    await asyncio.to_thread(_execute, url, f'CREATE SCHEMA "{name}"')
    try:
        yield f"{url}{'&' if '?' in url else '?'}options={quote(f'-csearch_path={name}')}"
    finally:
        await asyncio.shield(asyncio.to_thread(_execute, url, f'DROP SCHEMA IF EXISTS "{name}" CASCADE'))


def _execute(url: str, statement: str) -> None:
    where = "postgresql://" + url.partition("://")[2]
    with psycopg.connect(where, connect_timeout=CONNECT_LIMIT_S, autocommit=True, client_encoding="utf8") as connection:
        connection.execute(statement.encode())
