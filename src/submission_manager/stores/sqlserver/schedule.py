"""Reads the schedule on SQL Server: spec 000's cursor, and the row version to find the rows the cursor would miss.

A row is behind the cursor and unread only if its write was still active when the last reading began. Its version is
then at or above the lowest active version of that moment, and the next reading selects all of those. No row is missed,
however long a transaction stays open; while it is open, rows written since it began are read again at every refresh.
A refresh of several pages is a round: the next round starts from the lowest active version before this round's first
page.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

from fencehold import Term
from fencehold.backends.sqlserver.batch import Rows
from fencehold.backends.sqlserver.params import instant
from submission_manager.ports import Cursor, Due, LeftOpen, Page
from submission_manager.stores import rows
from submission_manager.stores.sqlserver.pool import Pool

#: An instant as the server writes it, and an id. The server's instants are finer than Python's, and it orders ids in
#: its own way: so places are sent back to it unchanged, and never compared here.
Place = tuple[str, str]
START: Place = ("1970-01-01T00:00:00", "")
NOW, PLACE, IS_FRESH, ACTIVE = 7, 8, 9, 10  # the columns after those of a schedule row
START_AT = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


@dataclass(frozen=True, slots=True)
class Guard:
    """All row versions below `seen` have been read; `floor` is spec 000's cursor at the start of the round.

    `round` is set only inside a round.
    """

    seen: bytes
    floor: Place
    round: Round | None = None


@dataclass(frozen=True, slots=True)
class Round:
    """A refresh of several pages that is not finished.

    `active` is the lowest active version before its first page, `after` the last row it has read, and `top` the last
    row read beyond the floor: it becomes the floor of the next round.
    """

    active: bytes
    after: Place
    top: Place


class SqlServerSchedule:
    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def rebuild(self, page_rows: int, limit_s: float) -> AsyncIterator[Page]:
        """Rows that change while the pages are read are found by the next refresh."""
        ((seen, modified_at, intent_id, place),) = await self._pool.run("horizon", {}, limit_s)
        cursor = Cursor(START_AT, "", Guard(bytes(seen), START))
        if place is not None:
            cursor = Cursor(instant(modified_at), intent_id, Guard(bytes(seen), (place, intent_id)))
        after = START
        while True:
            params = {"after_at": after[0], "after_id": after[1], "limit": page_rows}
            found = await self._pool.run("pending", params, limit_s)
            yield Page(_due(found), cursor, instant(found[0][NOW]) if found else await self._now(limit_s))
            if len(found) < page_rows:
                return
            after = _place(found[-1])

    async def _now(self, limit_s: float) -> dt.datetime:
        ((_, now),) = await self._pool.run("probe", {}, limit_s)
        return instant(now)

    async def refresh(self, cursor: Cursor, page_rows: int, limit_s: float) -> Page:
        guard: Guard = cursor.guard
        after, top = (guard.round.after, guard.round.top) if guard.round else (START, guard.floor)
        params = {
            "seen": guard.seen, "floor_at": guard.floor[0], "floor_id": guard.floor[1], "after_at": after[0],
            "after_id": after[1], "from_at": top[0], "from_id": top[1], "limit": page_rows,
        }  # fmt: skip
        clock, *found = await self._pool.run("refresh", params, limit_s)
        active = guard.round.active if guard.round else bytes(clock[ACTIVE])
        modified_at, intent_id = cursor.last_modified_at, cursor.intent_id
        if found and found[-1][IS_FRESH]:
            top, modified_at, intent_id = _place(found[-1]), instant(found[-1][2]), found[-1][0]
        after_this = Guard(active, top)
        if len(found) == page_rows:
            after_this = Guard(guard.seen, guard.floor, Round(active, _place(found[-1]), top))
        return Page(_due(found), Cursor(modified_at, intent_id, after_this), instant(clock[NOW]))

    async def left_open(self, term: Term, most: int, limit_s: float) -> LeftOpen:
        params = {"epoch": term.epoch, "holder": term.holder_id, "limit": most}
        return rows.left_open(await self._pool.run("left_open", params, limit_s))

    def on_submitted(self, hint: Callable[[], None]) -> None:
        """SQL Server cannot notify: `hint` is never called."""

    async def listen(self, limit_s: float) -> bool:
        return False

    async def close(self) -> None:
        await self._pool.close()


def _place(row: tuple[Any, ...]) -> Place:
    return row[PLACE], row[0]


def _due(found: Rows) -> list[Due]:
    texts: rows.Texts = {}
    due = []
    for intent_id, due_at, modified_at, url, target, created_at, deadline_s, *_ in found:
        at = None if due_at is None else instant(due_at)
        row = (intent_id, at, instant(modified_at), url, target, instant(created_at), deadline_s)
        due.append(rows.due(row, texts))
    return due
