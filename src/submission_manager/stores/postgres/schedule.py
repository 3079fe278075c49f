"""Reads the schedule on PostgreSQL: spec 000's cursor, and a snapshot to find the rows that the cursor would miss.

A row is behind the cursor and unread if its writer had not committed in the snapshot of the last reading. The row's
modified_xid shows exactly that: no row is missed, however long a transaction stays open, and none is read twice.
A refresh of several pages is a round: the next round starts from the snapshot of this round's first page.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

from fencehold import Term
from fencehold.backends.postgres.planned_session import PlannedSession
from fencehold.backends.postgres.session import Rows
from submission_manager.ports import Cursor, Due, LeftOpen, Page
from submission_manager.stores import rows
from submission_manager.stores.statements import StoreStatements

Place = tuple[dt.datetime, str]
START: Place = (dt.datetime(1970, 1, 1, tzinfo=dt.UTC), "")


@dataclass(frozen=True, slots=True)
class Guard:
    """All rows visible in the snapshot `seen` have been read; `floor` is spec 000's cursor at the start of the round.

    `next_seen` is set only inside a round: the snapshot of its first page. The cursor's place is then the last row read
    in this round.
    """

    seen: str
    floor: Place
    next_seen: str | None = None


class PostgresSchedule:
    def __init__(self, info: str, statements: StoreStatements) -> None:
        self._session = PlannedSession(info, statements)

    async def rebuild(self, page_rows: int, limit_s: float) -> AsyncIterator[Page]:
        """Rows that change while the pages are read are found by the next refresh."""
        seen, modified_at, intent_id = (await self._session.run("horizon", {}, limit_s))[0]
        floor: Place = START if modified_at is None else (modified_at, intent_id)
        cursor = Cursor(*floor, Guard(seen, floor))
        after = START
        while True:
            params = {"after_at": after[0], "after_id": after[1], "limit": page_rows}
            found = await self._session.run("pending", params, limit_s)
            due, now, _ = _sorted(found)
            yield Page(due, cursor, now)
            if len(due) < page_rows:
                return
            after = (due[-1].due_at or START[0], due[-1].intent_id)

    async def refresh(self, cursor: Cursor, page_rows: int, limit_s: float) -> Page:
        guard: Guard = cursor.guard
        after = START if guard.next_seen is None else (cursor.last_modified_at, cursor.intent_id)
        start = max(after, guard.floor)
        params = {
            "seen": guard.seen, "from_at": start[0], "from_id": start[1], "after_at": after[0], "after_id": after[1],
            "floor_at": guard.floor[0], "floor_id": guard.floor[1], "limit": page_rows,
        }  # fmt: skip
        due, now, snapshot = _sorted(await self._session.run("refresh", params, limit_s))
        due.sort(key=_place)
        place = _place(due[-1]) if due else after
        next_seen = guard.next_seen or snapshot
        if len(due) == page_rows:
            return Page(due, Cursor(*place, Guard(guard.seen, guard.floor, next_seen)), now)
        place = max(place, guard.floor)
        return Page(due, Cursor(*place, Guard(next_seen, place)), now)

    async def left_open(self, term: Term, most: int, limit_s: float) -> LeftOpen:
        params = {"epoch": term.epoch, "holder": term.holder_id, "limit": most}
        return rows.left_open(await self._session.run("left_open", params, limit_s))

    def on_submitted(self, hint: Callable[[], None]) -> None:
        self._session.on_hint(lambda what, name: hint())

    async def listen(self, limit_s: float) -> bool:
        return await self._session.listen(limit_s)

    async def close(self) -> None:
        await self._session.close()


def _place(due: Due) -> Place:
    return due.last_modified_at, due.intent_id


def _sorted(found: Rows) -> tuple[list[Due], dt.datetime, str]:
    """The schedule's rows, and from the clock's own row the time and the snapshot they were read in."""
    now, snapshot = next((row[2], row[-1]) for row in reversed(found) if row[-1] is not None)
    texts: rows.Texts = {}
    return [rows.due(row, texts) for row in found if row[-1] is None], now, snapshot
