"""Checks, after a commit, whether it has waited for a standby as it must.

If the wait was cut short, the data may be on one server only, and a failover may lose it: such a commit is reported as
Uncertain, not as a success. A store may also require that there is a standby to wait for (`Replicated`).

A wait ends early in two ways. If it is cancelled (pg_cancel_backend), the commit succeeds with a warning. If the server
is set to wait for nobody (`synchronous_standby_names` becomes empty), the commit succeeds without a warning; so the
setting is read after the commit.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar
from weakref import WeakKeyDictionary, WeakSet

import psycopg
from psycopg.rows import tuple_row

from fencehold.backends.postgres import wire
from fencehold.backends.sql.statements import Statements
from fencehold.model.durable import Durable
from fencehold.model.errors import ConfigurationError, Unavailable, Uncertain
from fencehold.ports.fact_table import StoreFacts
from fencehold.ports.facts import FactSink

GRANTS = ("acquire", "next_for_state")  # the statements that give a token to a holder
#: Promises of statements that are not the library's own: one that writes, and one that only reads what is stored.
PROMISED, PROMISED_BEFORE = "promised", "promised_before"
REPEATS = (PROMISED_BEFORE, "add")  # may write nothing, because an earlier call did, and still answer that it is stored
CHECKED = (*GRANTS, PROMISED, PROMISED_BEFORE)
WARNING = "01000"
WAITS_IN = "syncrep.c"  # the source file of the server's warning; its text is in the server's language
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
    """Remembers for one connection whether the wait of a commit was cut short, from the server's warnings.

    `was_cut_short` returns the answer once and forgets it, so call it after each commit.
    """

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
    """Whether a server's warning says that a commit's wait for a standby was cut short.

    The code of the warning is not enough: functions in the database raise warnings with the same code.
    """
    return source_file == WAITS_IN if source_file else bool(IN_ENGLISH.search(words or ""))


def watch(connection: Connection) -> None:
    """Listen from now on to the connection's warnings, so that a wait that was cut short is noticed.

    A second call for the same connection does nothing.
    """
    if connection not in _watched:
        _watched[connection] = waits = _Waits()
        connection.add_notice_handler(waits.hear)


def must_have_waited(connection: Connection) -> None:
    """Raise Uncertain (not_replicated) if the wait of the last commit on this connection was cut short.

    The commit is then on this server, but perhaps on no standby. Only a connection given to `watch` before is checked.
    """
    if _was_cut_short(connection):
        raise not_replicated(CUT_SHORT)


def _was_cut_short(connection: Connection) -> bool:
    """Whether the wait of the last commit on this connection was cut short; reading the answer also clears it.

    Call it after each commit, so that the answer does not count for the next one.
    """
    waits = _watched.get(connection)
    return waits is not None and waits.was_cut_short()


def not_replicated(why: str) -> Uncertain:
    return Uncertain(
        f"It is committed on this server, but {why}: a failover may lose it.",
        hint="It counts as lost until the store says otherwise.",
        code="not_replicated",
    )


class Commits:
    """The usual rule for commits: no standby is required, but a grant whose wait for a standby was cut short fails.

    It then raises Uncertain. A grant gives a holder an epoch or a token, which a failover must not lose. `Replicated`
    is the strict rule.
    """

    sync_commit = ""

    async def settle(self, connection: psycopg.AsyncConnection[Any], statements: Statements, is_pooled: bool) -> None:
        """Make a new connection ready: from now on it notes the server's warnings about commits that did not wait.

        A store that requires a standby also asks the server here for the standbys that it waits for. The session calls
        this once for each connection. `is_pooled`: a pooler is between this process and the server, so the setting
        cannot be made for the whole connection.
        """
        watch(connection)

    async def run(
        self,
        connection: psycopg.AsyncConnection[Any],
        statements: Statements,
        name: str,
        is_pooled: bool,
        work: Callable[[], Awaitable[T]],
    ) -> T:
        """Return the result of `work`, which runs the statement `name` and commits by itself.

        Raises Uncertain (not_replicated) if the commit may be on one server only, but the store requires a standby.
        """
        result = await work()
        if _was_cut_short(connection) and name in GRANTS:
            raise not_replicated(CUT_SHORT)
        return result

    def fenced(self, standbys: str) -> None:
        """Raise Unavailable (no_standby) if a fenced transaction must not go on. `standbys`: the server's own setting.

        The setting names the standbys that commits wait for; it is empty if they wait for none.
        """

    def watch(self, connection: Connection) -> None:
        """Prepare a new connection of ours for fenced transactions. Called once for each."""

    def watch_caller(self, connection: Connection) -> None:
        """Prepare a caller's connection, on which the caller itself commits. Called for each fence on it."""

    async def committed(self, connection: psycopg.AsyncConnection[Any], statements: Statements) -> None:
        """Check the commit that was just made on `connection`; no transaction is open before or after this call.

        Raises Uncertain (not_replicated) if the commit may be on one server only, but the store requires a standby.
        """

    def committed_sync(self, connection: psycopg.Connection[Any], statements: Statements) -> None:
        """Check the commit as `committed` does, in the calling thread."""


class Replicated(Commits):
    """The strict rule for commits, for a store opened with `durable=`: every commit of the store waits for a standby.

    A commit whose wait was cut short raises Uncertain. After grants, fenced commits and promises (answers that a caller
    relies on), and only after these, it also checks that the server is set to wait for a standby. If it is not, nothing
    is granted or promised and no fenced transaction begins; if `durable.refuses` is False, all of these go on, and the
    missing standby is reported as a fact.
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
        """Remember whether the server waits for a standby, and return that: False if the text `standbys` is empty.

        If the standby has gone since the last call, and `durable` allows to go on without one, that is reported as a
        fact of the store.
        """
        had, self._has_standby = self._has_standby, bool(standbys.strip())
        if had is not False and not self._has_standby and not self._refuses and self._facts is not None:
            StoreFacts(self._facts).store_not_replicated(detail=NO_STANDBY, hint=NO_STANDBY_HINT)
        return self._has_standby

    def fenced(self, standbys: str) -> None:
        if not self.saw(standbys) and self._refuses:
            raise Unavailable(f"{NO_STANDBY}; nothing was changed.", hint=NO_STANDBY_HINT, code="no_standby")

    def opened(self, standbys: str, is_cluster: bool) -> None:
        """Check at the first contact with the server that a standby is set, if one is required.

        Raises ConfigurationError without one; in a cluster Unavailable, because a standby may be about to connect.
        """
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
        """Report a fact if the wait of a commit on this connection is cut short.

        The caller commits, and gets the server's answer, itself; so we cannot raise an error there.
        """
        if connection not in self._callers and self._facts is not None:
            self._callers.add(connection)
            connection.add_notice_handler(self._tell_caller)

    def _tell_caller(self, notice: psycopg.errors.Diagnostic) -> None:
        if notice.sqlstate == WARNING and is_of_the_wait(notice.source_file, notice.message_primary):
            assert self._facts is not None, "heard only where it can be told"
            error = not_replicated(CUT_SHORT)
            StoreFacts(self._facts).commit_not_replicated(error=error.message)

    async def committed(self, connection: psycopg.AsyncConnection[Any], statements: Statements) -> None:
        must_have_waited(connection)
        standbys = await self._standbys(connection, statements, is_local=True)
        await connection.rollback()
        self._still(standbys)

    def committed_sync(self, connection: psycopg.Connection[Any], statements: Statements) -> None:
        must_have_waited(connection)
        cursor = psycopg.Cursor(connection, row_factory=tuple_row)
        cursor.execute(statements["replicated"].encode(), self.params(is_local=True))
        standbys, *_ = cursor.fetchone() or ("",)
        connection.rollback()
        self._still(standbys)

    def params(self, is_local: bool) -> Mapping[str, Any]:
        return {"sync_commit": self.sync_commit, "is_local": is_local}

    async def _standbys(
        self, connection: psycopg.AsyncConnection[Any], statements: Statements, *, is_local: bool
    ) -> str:
        """Return the names of the standbys that the server's commits wait for; empty if they wait for none.

        The statement also sets that commits wait from now on: for this transaction only if `is_local`, else for the
        whole session.
        """
        standbys, *_ = await wire.row_of(connection, statements["replicated"], self.params(is_local))
        return str(standbys)
