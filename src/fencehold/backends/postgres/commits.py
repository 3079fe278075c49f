"""What a commit has waited for: a wait for the standby that was cut short is no yes, and a store may ask for a standby.

A wait ends early in two ways. Cancelled (pg_cancel_backend), the commit succeeds with a warning. When the server is
told to wait for nobody (`synchronous_standby_names` becomes empty), it succeeds without a word; so it is asked
afterwards.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar
from weakref import WeakKeyDictionary, WeakSet

import psycopg
from psycopg.rows import tuple_row

from fencehold.backends.sql.statements import Statements
from fencehold.model.durable import Durable
from fencehold.model.errors import ConfigurationError, Unavailable, Uncertain
from fencehold.ports.facts import FactSink

GRANTS = ("acquire", "next_for_state")  # the statements after which somebody holds a token
REPEATS = ("submitted", "add")  # those that may write nothing, because a call before them did, and answer it as stored
CHECKED = (*GRANTS, "submit", "submitted")
WARNING = "01000"
WAITS_IN = "syncrep.c"  # where the server warns from; the words are in its own language
IN_ENGLISH = re.compile("synchronous replication")
NO_STANDBY = "synchronous_standby_names is empty: the server waits for no standby, and a failover can lose its commits"
NO_STANDBY_HINT = (
    "Set it (under Patroni: synchronous_mode, and synchronous_mode_strict so that it is never emptied), or go on "
    'without one: without_standby="warn" of connect(), for the commands the variable FENCEHOLD_WITHOUT_STANDBY=warn.'
)
CUT_SHORT = "its wait for the standby was cut short"
NOT_SEEN = "whether a standby keeps up only a role with pg_read_all_stats may see"

T = TypeVar("T")
Connection = psycopg.Connection[Any] | psycopg.AsyncConnection[Any]


class _Waits:
    """Whether a commit on one connection did not get what it waited for; asked once for each commit."""

    def __init__(self) -> None:
        self._is_cut_short = False

    def hear(self, notice: psycopg.errors.Diagnostic) -> None:
        if notice.sqlstate == WARNING and is_of_the_wait(notice.source_file, notice.message_primary):
            self._is_cut_short = True

    def was_cut_short(self) -> bool:
        found, self._is_cut_short = self._is_cut_short, False
        return found


_watched: WeakKeyDictionary[Connection, _Waits] = WeakKeyDictionary()


def is_of_the_wait(source_file: str | None, words: str | None) -> bool:
    """Functions of the database raise warnings with the same code."""
    return source_file == WAITS_IN if source_file else bool(IN_ENGLISH.search(words or ""))


def watch(connection: Connection) -> None:
    """From now on it is noticed when a wait for a standby is cut short on this connection."""
    if connection not in _watched:
        _watched[connection] = waits = _Waits()
        connection.add_notice_handler(waits.hear)


def must_have_waited(connection: Connection) -> None:
    """Raise Uncertain if the last commit on a watched connection is on this server, and perhaps on no other."""
    if _was_cut_short(connection):
        raise not_replicated(CUT_SHORT)


def _was_cut_short(connection: Connection) -> bool:
    """The wait of the last commit; asked after each, so that it is not taken for that of the next."""
    waits = _watched.get(connection)
    return waits is not None and waits.was_cut_short()


def not_replicated(why: str) -> Uncertain:
    return Uncertain(
        f"It is committed on this server, but {why}: a failover may lose it.",
        hint="It counts as lost until the store says otherwise.",
        code="not_replicated",
    )


class Commits:
    """Nothing is asked for beyond what each statement asks for itself; but a grant whose wait was cut short is none."""

    sync_commit = ""

    async def settle(self, connection: psycopg.AsyncConnection[Any], statements: Statements, is_pooled: bool) -> None:
        """Once on each new connection of a session."""
        watch(connection)

    async def run(
        self,
        connection: psycopg.AsyncConnection[Any],
        statements: Statements,
        name: str,
        is_pooled: bool,
        work: Callable[[], Awaitable[T]],
    ) -> T:
        """The result of `work`, which commits by itself; Uncertain if it has not got to where it must be."""
        result = await work()
        if _was_cut_short(connection) and name in GRANTS:
            raise not_replicated(CUT_SHORT)
        return result

    def fenced(self, standbys: str) -> None:
        """Raise Unavailable if a transaction must not go on, given for which standbys the server waits."""

    def watch(self, connection: Connection) -> None:
        """A new connection for fenced transactions."""

    def watch_caller(self, connection: Connection) -> None:
        """A connection of the caller's, who commits there."""

    async def committed(self, connection: psycopg.AsyncConnection[Any], statements: Statements) -> None:
        """After a commit; Uncertain if it has not got to where it must be. No transaction is open before or after."""

    def committed_sync(self, connection: psycopg.Connection[Any], statements: Statements) -> None:
        """The same without an event loop."""


class Replicated(Commits):
    """Every commit of the store's own waits for a standby, and one whose wait was cancelled is Uncertain.

    After grants, fenced commits and intents it is also asked whether the server waits at all; after the others not.
    Without a standby to wait for, nothing is granted, no intent is taken and no fenced transaction begins; or, with a
    warning, all of them go on.
    """

    def __init__(self, durable: Durable, facts: FactSink | None) -> None:
        self.sync_commit = durable.level
        self._refuses = durable.refuses
        self._facts = facts
        self._has_standby: bool | None = None  # as it was last seen
        self._callers: WeakSet[Connection] = WeakSet()

    async def settle(self, connection: psycopg.AsyncConnection[Any], statements: Statements, is_pooled: bool) -> None:
        watch(connection)
        self.saw(await self._standbys(connection, statements, is_local=is_pooled))

    async def run(
        self,
        connection: psycopg.AsyncConnection[Any],
        statements: Statements,
        name: str,
        is_pooled: bool,
        work: Callable[[], Awaitable[T]],
    ) -> T:
        is_checked = name in CHECKED
        if is_checked and not self._has_standby:
            self.fenced(await self._standbys(connection, statements, is_local=is_pooled))
        if is_pooled or name in REPEATS:
            async with connection.transaction():
                await self._standbys(connection, statements, is_local=True)
                result = await work()
                if name in REPEATS:
                    await connection.execute(statements["make_wait"].encode())
        else:
            result = await work()
        must_have_waited(connection)
        if is_checked:
            self._still(await self._standbys(connection, statements, is_local=is_pooled))
        return result

    def saw(self, standbys: str) -> bool:
        """Whether there is one; the end of that is told where it is not an error."""
        had, self._has_standby = self._has_standby, bool(standbys.strip())
        if had is not False and not self._has_standby and not self._refuses and self._facts is not None:
            self._facts.fact("store_not_replicated", detail=NO_STANDBY, hint=NO_STANDBY_HINT)
        return self._has_standby

    def fenced(self, standbys: str) -> None:
        if not self.saw(standbys) and self._refuses:
            raise Unavailable(f"{NO_STANDBY}; nothing was changed.", hint=NO_STANDBY_HINT, code="no_standby")

    def opened(self, standbys: str, is_cluster: bool) -> None:
        """At first contact; where there is a cluster, a standby may be on its way."""
        try:
            self.fenced(standbys)
        except Unavailable as error:
            message = f"{NO_STANDBY}. That is what any role may see; {NOT_SEEN}."
            kind = Unavailable if is_cluster else ConfigurationError
            raise kind(message, hint=NO_STANDBY_HINT, code=error.code) from None

    def _still(self, standbys: str) -> None:
        if not self.saw(standbys) and self._refuses:
            raise not_replicated("the server waits for no standby any more")

    def watch(self, connection: Connection) -> None:
        watch(connection)

    def watch_caller(self, connection: Connection) -> None:
        """The commit is the caller's, and so is its answer; what we can do is say so."""
        if connection not in self._callers and self._facts is not None:
            self._callers.add(connection)
            connection.add_notice_handler(self._tell_caller)

    def _tell_caller(self, notice: psycopg.errors.Diagnostic) -> None:
        if notice.sqlstate == WARNING and is_of_the_wait(notice.source_file, notice.message_primary):
            assert self._facts is not None, "heard only where it can be told"
            error = not_replicated(CUT_SHORT)
            self._facts.fact("commit_not_replicated", error=error.message)

    async def committed(self, connection: psycopg.AsyncConnection[Any], statements: Statements) -> None:
        must_have_waited(connection)
        standbys = await self._standbys(connection, statements, is_local=True)
        await connection.rollback()
        self._still(standbys)

    def committed_sync(self, connection: psycopg.Connection[Any], statements: Statements) -> None:
        must_have_waited(connection)
        cursor = psycopg.Cursor(connection, row_factory=tuple_row)
        cursor.execute(statements["replicated"].encode(), self.params(is_local=True))
        standbys = (cursor.fetchone() or ("",))[0]
        connection.rollback()
        self._still(standbys)

    def params(self, is_local: bool) -> Mapping[str, Any]:
        return {"sync_commit": self.sync_commit, "is_local": is_local}

    async def _standbys(
        self, connection: psycopg.AsyncConnection[Any], statements: Statements, *, is_local: bool
    ) -> str:
        """Which the server waits for; from now on commits here wait too."""
        cursor = psycopg.AsyncCursor(connection, row_factory=tuple_row)
        await cursor.execute(statements["replicated"].encode(), self.params(is_local))
        row = await cursor.fetchone()
        return str(row[0]) if row is not None else ""
