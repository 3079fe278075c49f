"""Connections of drivers and frameworks that are not ours: Django's, asyncpg's and aiosqlite's own."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any

import aiosqlite
import asyncpg
import django
import psycopg
from django.conf import settings
from django.db import connections, transaction
from django.db.utils import load_backend

from fencehold.backends.sql.statements import numbered
from fencehold.testing.harness import Caller, Door
from tests.fencehold.testing.conformance.callers import AsyncCaller, OneDoor

Params = Mapping[str, Any] | None
ALIAS = "fencehold_test"


class DjangoCaller:
    """Django's connection and its atomic(), on the one thread they belong to; fenced from another."""

    def __init__(self, wrapper: Any) -> None:
        self.target = wrapper
        self._thread = ThreadPoolExecutor(1, "django")
        self._atomic: Any = None

    async def open(self, prepare: Callable[[Any], None]) -> None:
        def connect() -> None:
            connections[ALIAS] = self.target
            self.target.inc_thread_sharing()
            self.target.ensure_connection()
            prepare(self.target.connection)

        await self._run(connect)

    async def begin(self) -> None:
        self._atomic = transaction.atomic(using=ALIAS)
        await self._run(self._atomic.__enter__)

    async def execute(self, statement: str, params: Params = None) -> int:
        def work() -> int:
            if params is not None:  # in the driver's own words
                return int(self.target.connection.execute(statement, params).rowcount)
            with self.target.cursor() as cursor:
                cursor.execute(statement)
                return int(cursor.rowcount)

        return int(await self._run(work))

    async def commit(self) -> None:
        await self._run(self._atomic.__exit__, None, None, None)

    async def rollback(self) -> None:
        await self._run(transaction.set_rollback, True, ALIAS)
        await self.commit()

    async def close(self) -> None:
        await self._run(self.target.close)
        self._thread.shutdown()

    async def _run(self, work: Callable[..., Any], *given: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work, *given)


def django_settings(engine: str, name: str, **more: Any) -> dict[str, Any]:
    """As in DATABASES, with everything that Django would fill in."""
    if not settings.configured:
        settings.configure(DATABASES={}, USE_TZ=True)
        django.setup()
    defaults: dict[str, Any] = {
        "ATOMIC_REQUESTS": False, "AUTOCOMMIT": True, "CONN_MAX_AGE": None, "CONN_HEALTH_CHECKS": False, "OPTIONS": {},
        "TIME_ZONE": None, "USER": "", "PASSWORD": "", "HOST": "", "PORT": "", "TEST": {},
    }  # fmt: skip
    return {**defaults, "ENGINE": f"django.db.backends.{engine}", "NAME": name, **more}


def of_postgres(url: str) -> dict[str, Any]:
    parts = psycopg.conninfo.conninfo_to_dict(url)
    login = {"USER": parts["user"], "PASSWORD": parts.get("password", ""), "HOST": parts["host"], "PORT": parts["port"]}
    return django_settings("postgresql", str(parts["dbname"]), OPTIONS={"options": parts.get("options", "")}, **login)


def django_door(database: Callable[[], dict[str, Any]], prepare: Callable[[Any], None] = lambda _: None) -> Door:
    @asynccontextmanager
    async def opener(autocommit: bool) -> AsyncIterator[Caller]:
        asked = database()
        caller = DjangoCaller(load_backend(asked["ENGINE"]).DatabaseWrapper(asked, ALIAS))
        await caller.open(prepare)
        try:
            yield caller
        finally:
            await caller.close()

    return OneDoor("Django's connection", False, opener)


class AsyncpgCaller:
    def __init__(self, connection: Any) -> None:
        self.target = connection
        self._transaction: Any = None

    async def begin(self) -> None:
        self._transaction = self.target.transaction()
        await self._transaction.start()

    async def execute(self, statement: str, params: Params = None) -> int:
        text, names = numbered(statement)
        told = await self.target.execute(text, *((params or {})[name] for name in names))
        return int(told.split()[-1])

    async def commit(self) -> None:
        with contextlib.suppress(asyncpg.InterfaceError):  # a refused fence has ended the connection
            await self._transaction.commit()

    async def rollback(self) -> None:
        with contextlib.suppress(asyncpg.InterfaceError):
            await self._transaction.rollback()


def asyncpg_door(url: str, *, pooled: bool = False) -> Door:
    @asynccontextmanager
    async def opener(autocommit: bool) -> AsyncIterator[Caller]:
        parts = psycopg.conninfo.conninfo_to_dict(url)
        given: dict[str, Any] = {name: parts.get(name) for name in ("host", "port", "user", "password")}
        options = dict(one.split("=") for one in str(parts.get("options", "")).replace("-c", "").split())
        given |= {"database": parts["dbname"], "server_settings": options}
        if pooled:
            async with asyncpg.create_pool(min_size=1, max_size=1, **given) as pool, pool.acquire() as connection:
                yield AsyncpgCaller(connection)
            return
        connection = await asyncpg.connect(**given)
        try:
            yield AsyncpgCaller(connection)
        finally:
            await connection.close()

    return OneDoor("asyncpg's connection" + " of a pool" * pooled, True, opener)


class CallersRow(dict[str, str]):
    """What a caller's own factory may make of a row."""

    def __init__(self, *_: object) -> None:
        super().__init__(made="by the caller")


def aiosqlite_door(path: str, strftime: Callable[..., Any]) -> Door:
    @asynccontextmanager
    async def opener(autocommit: bool) -> AsyncIterator[Caller]:
        level: Any = {"isolation_level": None} if autocommit else {}
        async with aiosqlite.connect(path, timeout=10, **level) as connection:
            await connection.create_function("strftime", -1, strftime)
            connection.row_factory = CallersRow
            yield AsyncCaller(connection)
            with contextlib.suppress(ValueError):
                await connection.rollback()

    return OneDoor("aiosqlite's connection", False, opener)
