"""Workers that break a rule on purpose: the crash run's referee has to notice each of them."""

import dataclasses
import sqlite3
from collections.abc import Callable, Sequence
from typing import Any

import psycopg

from fencehold.model.errors import Unavailable
from fencehold.ports.events import ClaimKey, Turn

BLIND_SQL = {
    "sqlite": "UPDATE outbox SET status = 'COMPLETED', locked_until = NULL,"
    " processed_at = strftime('%Y-%m-%dT%H:%M:%fZ', 'now') WHERE tracking_id = ?",
    "postgresql": "UPDATE outbox SET status = 'COMPLETED', locked_until = NULL, processed_at = clock_timestamp()"
    " WHERE tracking_id = %s",
}


def port_class(url: str) -> Any:
    if url.startswith("sqlite"):
        from fencehold.backends.sqlite.outbox.events import SqliteEventPort

        return SqliteEventPort
    from fencehold.backends.postgres.outbox.events import PostgresEventPort

    return PostgresEventPort


def no_token(url: str, name: str) -> None:
    """Completes whatever it worked on, whoever holds it by now."""
    port = port_class(url)
    ships_as = port.turn

    async def turn(self: Any, completed: Sequence[ClaimKey], ask: Any, limit_s: float) -> Turn:
        try:
            complete_blindly(url, [key.tracking_id for key in completed])
        except (sqlite3.Error, psycopg.Error) as error:
            raise Unavailable(str(error)) from error
        answer = await ships_as(self, [], ask, limit_s)
        return Turn(list(completed), answer.claims)

    port.turn = turn


def complete_blindly(url: str, tracking_ids: Sequence[str]) -> None:
    if not tracking_ids:
        return
    keys = [(tracking_id,) for tracking_id in tracking_ids]
    if url.startswith("sqlite"):
        connection = sqlite3.connect(url.removeprefix("sqlite:///"), timeout=10)
        with connection:
            connection.executemany(BLIND_SQL["sqlite"], keys)
        connection.close()
        return
    with psycopg.connect(url, connect_timeout=10) as pg:
        pg.cursor().executemany(BLIND_SQL["postgresql"], keys)


def same_token(url: str, name: str) -> None:
    """One token for all its claims, as a rule book that says "unique per worker" would have it."""
    port = port_class(url)
    ships_as = port.turn

    async def turn(self: Any, completed: Sequence[ClaimKey], ask: Any, limit_s: float) -> Turn:
        asked = ask and dataclasses.replace(ask, token="everybody")
        answer: Turn = await ships_as(self, completed, asked, limit_s)
        return answer

    port.turn = turn


SABOTAGES: dict[str, Callable[[str, str], None]] = {"no_token": no_token, "same_token": same_token}
