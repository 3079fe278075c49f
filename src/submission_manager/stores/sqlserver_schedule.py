"""The schedule's reading on SQL Server: spec 000's cursor, with the row version that shows what it would miss.

A row is behind the cursor and unread only if its write was still active when the last reading began: its version is
then at or above the lowest active one of that moment, and the next reading asks for all of those. Nothing is missed
however long a transaction stays open; while one does, what was written since it began is read again at every refresh.
A refresh of several pages is a round: the next round asks from where this one stood before its first page.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

from fencehold.backends.sqlserver.batch import Rows
from fencehold.backends.sqlserver.params import instant, instant_text
from submission_manager.ports import Cursor, Due, Page
from submission_manager.stores.sqlserver_pool import Pool

Place = tuple[dt.datetime, str]
START: Place = (dt.datetime(1970, 1, 1, tzinfo=dt.UTC), "")


@dataclass(frozen=True, slots=True)
class Guard:
    """What is below `seen` has been read; `floor` is spec 000's cursor at the start of the round.

    `next_seen` is set inside a round: what was active before its first page. The cursor's own place is then in the
    round, and `top` is what the floor will be after it. Ids are never compared here: their order is the server's.
    """

    seen: bytes
    floor: Place
    next_seen: bytes | None = None
    top: Place = START


class SqlServerSchedule:
    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def rebuild(self, page_rows: int, limit_s: float) -> AsyncIterator[Page]:
        """What changes while the pages are read is left to the refresh after them."""
        ((seen, modified_at, intent_id),) = await self._pool.run("horizon", {}, limit_s)
        floor: Place = START if modified_at is None else (instant(modified_at), intent_id)
        cursor = Cursor(*floor, Guard(bytes(seen), floor))
        after = START
        while True:
            params = {"after_at": instant_text(after[0]), "after_id": after[1], "limit": page_rows}
            found = await self._pool.run("pending", params, limit_s)
            due = _due(found)
            yield Page(due, cursor, instant(found[0][4]))
            if len(due) < page_rows:
                return
            after = (due[-1].due_at or START[0], due[-1].intent_id)

    async def refresh(self, cursor: Cursor, page_rows: int, limit_s: float) -> Page:
        guard: Guard = cursor.guard
        is_first = guard.next_seen is None
        after = START if is_first else (cursor.last_modified_at, cursor.intent_id)
        params = {
            "seen": guard.seen, "floor_at": instant_text(guard.floor[0]), "floor_id": guard.floor[1],
            "after_at": instant_text(after[0]), "after_id": after[1], "limit": page_rows,
        }  # fmt: skip
        found = await self._pool.run("refresh", params, limit_s)
        due, now, active = _due(found), instant(found[0][4]), bytes(found[0][6])
        next_seen = guard.next_seen or active
        top = guard.floor if is_first else guard.top
        if due and found[-1][5]:
            top = _place(due[-1])
        if len(due) == page_rows:
            return Page(due, Cursor(*_place(due[-1]), Guard(guard.seen, guard.floor, next_seen, top)), now)
        return Page(due, Cursor(*top, Guard(next_seen, top)), now)

    def on_submitted(self, hint: Callable[[], None]) -> None:
        """SQL Server tells nobody of a change: nobody is ever called."""

    async def listen(self, limit_s: float) -> bool:
        return False

    async def close(self) -> None:
        await self._pool.close()


def _place(due: Due) -> Place:
    return due.last_modified_at, due.intent_id


def _due(found: Rows) -> list[Due]:
    """The rows, without the one that brings the clock alone."""
    urls: dict[str, str] = {}  # one text for all rows that name the same gateway: a million are kept
    due = []
    for intent_id, due_at, modified_at, url, *_ in found:
        if intent_id is not None:
            at = None if due_at is None else instant(due_at)
            due.append(Due(intent_id, at, instant(modified_at), urls.setdefault(url, url)))
    return due
