"""Checks PostgreSQL for `fencehold doctor`: a write that is rolled back, encoding, limits, durability, failover."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, TypeVar

import psycopg

from fencehold.backends.postgres import faults, unread, wire
from fencehold.backends.postgres.cluster_seen import Seen, failover
from fencehold.backends.sql.durability import durability
from fencehold.backends.sql.statements import Statements, tables_made
from fencehold.model.settings import CALL_LIMIT_S_MAX
from fencehold.ports.checkup import Condition, State, TablesMade
from fencehold.ports.time_limit import fixed

LOCK_LIMIT_MS = "1000"
PROBE = "fencehold doctor "
TIMEOUTS = (
    "statement_timeout",
    "lock_timeout",
    "idle_in_transaction_session_timeout",
    "idle_session_timeout",
    "transaction_timeout",
)
T = TypeVar("T")


class PostgresCheckup:
    def __init__(self, info: str, statements: Statements) -> None:
        self._info = info
        self._statements = statements

    async def try_write(self, limit_s: float) -> None:
        await self._asked(self._write, limit_s)

    async def tables_made(self, limit_s: float) -> TablesMade:
        return await self._asked(self._made, limit_s)

    async def _made(self, connection: wire.Connection) -> TablesMade:
        found: list[tuple[str, str]] = []
        for record in self._statements.records():
            cursor = await connection.execute(record["steps_there"])
            (is_there,) = await cursor.fetchone() or (False,)
            if is_there:
                found += await (await connection.execute(record["tables_made"])).fetchall()
        return tables_made(self._statements.table, found)

    async def conditions(self, limit_s: float) -> list[Condition]:
        return await self._asked(self._conditions, limit_s)

    async def _asked(self, work: Callable[[wire.Connection], Coroutine[Any, Any, T]], limit_s: float) -> T:
        """Return the result of `work` on a new connection with all limits that are set for this role; never commit.

        Raises our error for an error of psycopg: Unavailable (busy) if a lock was not granted in time.
        """
        connection = await wire.connect(self._info, min(limit_s, wire.CONNECT_LIMIT_S), autocommit=False)
        try:
            with wire.lent(connection):
                return await wire.bounded(connection, work(connection), fixed(limit_s))
        except psycopg.errors.LockNotAvailable as error:
            raise faults.locked(error) from None
        except psycopg.Error as error:
            raise faults.of_statement(error) from None

    async def _write(self, connection: wire.Connection) -> None:
        name = f"{PROBE}{secrets.token_hex(8)}"
        await connection.execute(self._statements["lock_limit"], {"limit_ms": LOCK_LIMIT_MS})
        params = {"name": name, "holder": name, "lease": 1.0, "nonce": ""}
        await connection.execute(self._statements["acquire"], params)
        await connection.rollback()

    async def _conditions(self, connection: wire.Connection) -> list[Condition]:
        settings = await self._settings(connection)
        risks = await connection.execute(self._statements["durability"])
        found = [server(connection), encoding(settings["server_encoding"])]
        found += [limits(settings), durability(await risks.fetchall()), await self._timeline(connection)]
        return [*found, await self._failover(connection)]

    async def _failover(self, connection: wire.Connection) -> Condition:
        row = await (await connection.execute(self._statements["cluster"])).fetchone()
        assert row is not None, "it always answers one row"
        senders, slots, is_patroni, standbys, client_port = row
        is_proxied = wire.is_proxied(connection, client_port)
        return failover(Seen(senders, slots, is_patroni, standbys, is_proxied))

    async def _timeline(self, connection: wire.Connection) -> Condition:
        try:
            row = await (await connection.execute(self._statements["probe_place"])).fetchone()
        except psycopg.Error as error:
            if not faults.is_unread(error):
                raise
            await connection.rollback()  # a failed transaction refuses the statements that follow
            return Condition("epochs after a failover", State.WARNING, unread.text(faults.text_of(error)), unread.HINT)
        assert row is not None, "a probe always answers one row"
        _, found, *_ = row
        return timeline(found)

    async def _settings(self, connection: wire.Connection) -> dict[str, str]:
        cursor = await connection.execute(self._statements["server_settings"])
        return dict(await cursor.fetchall())


def server(connection: wire.Connection) -> Condition:
    """Return which server was reached (a URL may name several), as a finding that is always OK."""
    info = connection.info
    return Condition("server", State.OK, f"{info.host}:{info.port} answers, PostgreSQL {info.server_version // 10000}")


def encoding(name: str) -> Condition:
    if name == "UTF8":
        return Condition("encoding", State.OK, "UTF8")
    if name == "SQL_ASCII":
        hint = "Let every program connect with client_encoding=utf8, or use a database in UTF8."
        return Condition("encoding", State.WARNING, "SQL_ASCII: the server stores whatever bytes it is given", hint)
    return Condition("encoding", State.OK, f"{name}: text with other characters is refused (not_in_encoding)")


def timeline(found: str | None) -> Condition:
    """Return the finding about the timeline, the server's number that changes with a failover; it is always OK.

    `found`: the number in hexadecimal, as in the names of the server's log files; None on a standby.
    """
    said = "this is a standby" if found is None else f"timeline {int(found, 16)}"
    return Condition("epochs after a failover", State.OK, f"{said}; the first one on another timeline jumps")


def limits(settings: Mapping[str, str]) -> Condition:
    """Return the finding about the role's time limits: a warning names those shorter than fencehold's own limits.

    A limit of 0 means that there is no limit.
    """
    ours_ms = int(CALL_LIMIT_S_MAX * 1000)
    short = [f"{name} = {settings[name]} ms" for name in TIMEOUTS if 0 < int(settings.get(name, 0)) < ours_ms]
    if not short:
        return Condition("limits of this role", State.OK, "none is shorter than fencehold's own")
    hint = (
        f"fencehold lifts them in its own sessions, but cannot behind a pooler; there set {ours_ms} ms or more "
        "(ALTER ROLE ... SET)."
    )
    return Condition("limits of this role", State.WARNING, f"shorter than fencehold's own: {', '.join(short)}", hint)
