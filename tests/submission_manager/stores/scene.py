"""One database with the service's tables in it, a look behind the store, and leaders as a test needs them."""

from __future__ import annotations

import contextlib
import datetime as dt
import secrets
import sqlite3
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import psycopg

import fencehold
from fencehold import Term
from fencehold.backends.sql.own_tables import OwnStatements
from fencehold.backends.sql.statements import named, pyformat
from fencehold.backends.sqlserver.params import bound
from fencehold.connect import backend_for
from submission_manager.model.contracts import Contract, GatewayType, Policy, Webhook
from submission_manager.model.intents import NewIntent
from submission_manager.ports import Cursor, Due, Submitted
from submission_manager.stores.opening import LEASE_TABLE, PACKAGE, TABLE, Store, open_store
from tests.servers.sqlserver import open_connection

LIMIT_S = 30.0
HOOK = Webhook("https://receiver.test/hook", {"X-Team": "red"}, {"X-Key": "HOOK_KEY"}, "HOOK_SECRET")


def contract(policy: Policy = Policy.ONE_SHOT, **fields: Any) -> Contract:
    values = {
        "submission_target": "sms.realtime",
        "gateway_url": "http://gateway.test",
        "terminal_outcomes": ("invalid_request",),
    }
    return Contract(gateway_type=GatewayType.SMS, policy=policy, **{**values, **fields})


ONE_SHOT = contract()
TWICE = contract(Policy.MAX_ATTEMPTS, max_attempts=2, webhook=HOOK)
SOON = contract(Policy.DEADLINE, max_acceptance_seconds=30, webhook=HOOK)


# Where a connection's first statements take long, tables are not looked for twice.
_HAS_LEASES: set[str] = set()
_HAS_TABLES: set[str] = set()


class Scene:
    def __init__(self, url: str, store: Store, stack: AsyncExitStack) -> None:
        self.url = url
        self.store = store
        self._stack = stack
        self._leases: fencehold.Store | None = None
        self._lease_name = f"executor-{secrets.token_hex(4)}"  # epochs of its own in a table that others use too
        self._observed: set[Due] = set()

    async def submit(self, intent_id: str, given: Contract = ONE_SHOT, payload: bytes | None = b"{}") -> Submitted:
        return await self.store.intake.submit(NewIntent(intent_id, payload, given), LIMIT_S)

    async def another(self) -> Store:
        """The same database, as another instance sees it."""
        store = open_store(self.url)
        await store.open()
        self._stack.push_async_callback(store.close)
        return store

    async def term(self, holder_id: str = "first") -> Term:
        """A term that nothing ends while the test runs, unless another takes over."""
        if self._leases is None:
            self._leases = await self._stack.enter_async_context(fencehold.connect(self.url, table=LEASE_TABLE))
            if self.url not in _HAS_LEASES:
                await make_lease_table(self.url)
                _HAS_LEASES.add(self.url)
        leader = self._leases.leader(
            self._lease_name, lease="60s", acquire_every="50ms", holder_id=holder_id, release_on_stop=False
        )
        await leader.start()
        assert await leader.wait_for_leadership(LIMIT_S)
        assert leader.term is not None
        return leader.term

    async def take_over(self) -> Term:
        """The lease of whoever leads has run out, and does not know it; another leads now."""
        self.sql(
            f"UPDATE {LEASE_TABLE} SET expires_at = :past", past=self.stamp(dt.datetime(2020, 1, 1, tzinfo=dt.UTC))
        )
        return await self.term("second")

    async def rebuilt(self, store: Store | None = None, page_rows: int = 100) -> tuple[list[Due], Cursor]:
        rows: list[Due] = []
        async for page in (store or self.store).schedule.rebuild(page_rows, LIMIT_S):
            rows += page.rows
        self._observed.update(rows)
        return rows, page.cursor

    async def refreshed(self, cursor: Cursor, page_rows: int = 100) -> tuple[list[Due], Cursor]:
        """All pages there are just now; on SQL Server without what any transaction in its way makes it read again."""
        rows: list[Due] = []
        while True:
            page = await self.store.schedule.refresh(cursor, page_rows, LIMIT_S)
            rows, cursor = rows + [row for row in page.rows if not self._is_repeat(row)], page.cursor
            if len(page.rows) < page_rows:
                return rows, cursor

    def _is_repeat(self, row: Due) -> bool:
        is_repeat = self.dialect == "sqlserver" and row in self._observed
        self._observed.add(row)
        return is_repeat

    # --- behind the store's back ---

    @property
    def dialect(self) -> str:
        return {"sqlite": "sqlite", "mssql": "sqlserver"}.get(self.url.partition(":")[0], "postgres")

    def sql(self, statement: str, **params: Any) -> Sequence[tuple[Any, ...]]:
        if self.dialect == "sqlserver":
            return run_on_sqlserver(self.url, statement, params)
        is_sqlite = self.dialect == "sqlite"
        path = self.url.removeprefix("sqlite:///")
        with sqlite3.connect(path, timeout=LIMIT_S) if is_sqlite else psycopg.connect(self.url) as connection:
            cursor = connection.execute(statement if is_sqlite else pyformat(statement), params)
            return cursor.fetchall() if cursor.description else []

    def stamp(self, at: dt.datetime) -> Any:
        match self.dialect:
            case "sqlite":
                return at.strftime("%Y-%m-%dT%H:%M:%S.000Z")
            case "sqlserver":
                return at.replace(tzinfo=None).isoformat()
        return at

    def column(self, intent_id: str, name: str) -> Any:
        return self.sql(f"SELECT {name} FROM submission_intents WHERE intent_id = :id", id=intent_id)[0][0]

    def make_old(self, intent_id: str) -> None:
        """Submitted long ago."""
        past = self.stamp(dt.datetime(2020, 1, 1, tzinfo=dt.UTC))
        self.sql("UPDATE submission_intents SET created_at = :past WHERE intent_id = :id", past=past, id=intent_id)

    def everything(self) -> list[Any]:
        """All that the two tables hold."""
        intents = self.sql("SELECT * FROM submission_intents ORDER BY intent_id")
        return [list(intents), list(self.sql("SELECT * FROM submission_attempts ORDER BY intent_id, attempt_number"))]


def statements(url: str) -> OwnStatements:
    """The service's own statements, as they are sent to the database at the URL."""
    dialect = {"sqlite": "sqlite", "mssql": "sqlserver"}.get(url.partition(":")[0], "postgres")
    return OwnStatements(dialect, PACKAGE, TABLE, pyformat if dialect == "postgres" else named)


async def make_lease_table(url: str) -> None:
    backend = backend_for(url, LEASE_TABLE)()
    try:
        await backend.schema.init(LIMIT_S)
    finally:
        await backend.close()


def run_on_sqlserver(url: str, statement: str, params: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    with contextlib.closing(open_connection(url)) as connection:
        cursor = connection.cursor()
        text, values = bound(statement, params)
        cursor.execute(text, *values)
        return [tuple(row) for row in cursor.fetchall()] if cursor.description else []


@asynccontextmanager
async def scene(url: str) -> AsyncIterator[Scene]:
    async with AsyncExitStack() as stack:
        store = open_store(url)
        stack.push_async_callback(store.close)
        await store.open()
        if url not in _HAS_TABLES:
            await store.init()
        if url.startswith("mssql"):
            _HAS_TABLES.add(url)
        yield Scene(url, store, stack)
