"""The connections a user may own: each kind as one that begins, executes and commits, in the same words."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing, contextmanager
from dataclasses import dataclass
from typing import Any

import sqlalchemy
import sqlmodel
from sqlalchemy.ext.asyncio import (
    AsyncEngine,
    AsyncSession,
    async_scoped_session,
    async_sessionmaker,
    create_async_engine,
)
from sqlalchemy.orm import Session, scoped_session, sessionmaker
from sqlmodel.ext.asyncio.session import AsyncSession as SqlModelAsyncSession

from fencehold.testing.harness import Caller, Door

Params = Mapping[str, Any] | None
Prepare = Callable[[Any], None]


class PlainCaller:
    """A driver's own sync connection. Statements run on a thread: one that waits for a lock must not stop the test."""

    def __init__(self, connection: Any, begin: str | None) -> None:
        self.target = connection
        self._begin = begin

    async def begin(self) -> None:
        if self._begin:
            await self.execute(self._begin)

    async def execute(self, statement: str, params: Params = None) -> int:
        arguments = [statement] if params is None else [statement, params]
        return int((await asyncio.to_thread(self.target.execute, *arguments)).rowcount)

    async def commit(self) -> None:
        await asyncio.to_thread(self.target.commit)

    async def rollback(self) -> None:
        await asyncio.to_thread(self.target.rollback)


class AsyncCaller:
    """A driver's own async connection."""

    def __init__(self, connection: Any) -> None:
        self.target = connection

    async def begin(self) -> None:
        return None  # it begins with the first statement

    async def execute(self, statement: str, params: Params = None) -> int:
        return int((await self.target.execute(statement, params)).rowcount)

    async def commit(self) -> None:
        await self.target.commit()

    async def rollback(self) -> None:
        await self.target.rollback()


class AlchemyCaller(PlainCaller):
    def __init__(self, target: Any) -> None:
        super().__init__(target, None)

    async def execute(self, statement: str, params: Params = None) -> int:
        return int((await asyncio.to_thread(executed, self.target, statement, params)).rowcount)


class AsyncAlchemyCaller(AsyncCaller):
    async def execute(self, statement: str, params: Params = None) -> int:
        return int((await executed(self.target, statement, params)).rowcount)


def executed(target: Any, statement: str, params: Params) -> Any:
    """In SQLModel's own words where they differ: its execute() is deprecated."""
    text, given = sqlalchemy.text(statement), dict(params or {})
    return target.exec(text, params=given) if hasattr(target, "exec") else target.execute(text, given)


@dataclass(frozen=True)
class OneDoor:
    title: str
    takes_text: bool
    opener: Callable[[bool], AbstractAsyncContextManager[Caller]]

    def open(self, *, autocommit: bool = False) -> AbstractAsyncContextManager[Caller]:
        return self.opener(autocommit)


def plain_door(title: str, connect: Callable[[bool], Any], begin: str | None = None) -> Door:
    @asynccontextmanager
    async def opener(autocommit: bool) -> AsyncIterator[Caller]:
        with closing(connect(autocommit)) as connection:
            yield PlainCaller(connection, begin)

    return OneDoor(title, False, opener)


def alchemy_doors(sync_url: str, async_url: str, prepare: Prepare) -> list[Door]:
    """Sessions and connections, also of a registry and SQLModel's; `prepare` sees each new driver connection."""
    of_sync: dict[str, Callable[[Any], Any]] = {
        "SQLAlchemy Session": Session,
        "SQLAlchemy Connection": lambda engine: engine.connect(),
        "SQLAlchemy scoped_session": _scoped,
        "SQLModel Session": sqlmodel.Session,
    }
    of_async: dict[str, Callable[[AsyncEngine], Any]] = {
        "SQLAlchemy AsyncSession": AsyncSession,
        "SQLAlchemy AsyncConnection": lambda engine: engine.connect(),
        "SQLAlchemy scoped AsyncSession": _scoped_async,
        "SQLModel AsyncSession": SqlModelAsyncSession,
    }
    doors: list[Door] = [OneDoor(title, True, _sync_opener(sync_url, make, prepare)) for title, make in of_sync.items()]
    return doors + [OneDoor(title, True, _async_opener(async_url, make, prepare)) for title, make in of_async.items()]


@contextmanager
def _scoped(engine: Any) -> Iterator[Any]:
    """One session for all threads: this test's statements run on several."""
    sessions = scoped_session(sessionmaker(engine), scopefunc=lambda: None)
    yield sessions
    sessions.remove()


@asynccontextmanager
async def _scoped_async(engine: AsyncEngine) -> AsyncIterator[Any]:
    sessions = async_scoped_session(async_sessionmaker(engine), scopefunc=asyncio.current_task)
    yield sessions
    await sessions.remove()


def _sync_opener(url: str, make: Callable[[Any], Any], prepare: Prepare) -> Callable[[bool], Any]:
    @asynccontextmanager
    async def opener(autocommit: bool) -> AsyncIterator[Caller]:
        engine = sqlalchemy.create_engine(url, poolclass=sqlalchemy.NullPool, **_level(autocommit))
        sqlalchemy.event.listen(engine, "connect", lambda connection, record: prepare(connection))
        try:
            with make(engine) as target:
                yield AlchemyCaller(target)
        finally:
            engine.dispose()

    return opener


def _async_opener(url: str, make: Callable[[AsyncEngine], Any], prepare: Prepare) -> Callable[[bool], Any]:
    @asynccontextmanager
    async def opener(autocommit: bool) -> AsyncIterator[Caller]:
        engine = create_async_engine(url, poolclass=sqlalchemy.NullPool, **_level(autocommit))
        sqlalchemy.event.listen(engine.sync_engine, "connect", lambda connection, record: prepare(connection))
        try:
            async with make(engine) as target:
                yield AsyncAlchemyCaller(target)
        finally:
            await engine.dispose()

    return opener


def _level(autocommit: bool) -> dict[str, Any]:
    return {"isolation_level": "AUTOCOMMIT"} if autocommit else {}
