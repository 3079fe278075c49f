"""Reads the schedule on SQL Server: spec 000's cursor, and the row version to find the rows the cursor would miss.

A row is behind the cursor and unread only if its write was still active when the last reading began. Its version is
then at or above the lowest active version of that moment, and the next reading selects all of those. No row is missed,
however long a transaction stays open; while it is open, rows written since it began are read again at every refresh.
A refresh of several pages is a round: the next round starts from the lowest active version before this round's first
page.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import Any

from fencehold.own_tables import Row
from submission_manager.model.outcomes import EARLIEST
from submission_manager.ports import Cursor, Page
from submission_manager.stores import rows
from submission_manager.stores.schedule import Place, Schedule

#: The server's instants are finer than Python's, and it orders ids in its own way: so places are texts that are sent
#: back to it unchanged, and never compared here.
START: Place = ("1970-01-01T00:00:00", "")


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


class SqlServerSchedule(Schedule):
    start = START

    async def _horizon(self, limit_s: float) -> Cursor:
        (row,) = await self._rows("horizon", {}, limit_s)
        seen = bytes(row["active"])
        if row["place"] is None:
            return Cursor(EARLIEST, "", Guard(seen, START))
        return Cursor(row["last_modified_at"], row["intent_id"], Guard(seen, self._place(row)))

    async def _pending(self, params: dict[str, Any], limit_s: float) -> tuple[list[Row], dt.datetime]:
        found = await self._rows("pending", params, limit_s)
        clock = found or await self._rows("probe", {}, limit_s)
        return found, clock[0]["now"]

    async def refresh(self, cursor: Cursor, page_rows: int, limit_s: float) -> Page:
        guard: Guard = cursor.guard
        after, top = (guard.round.after, guard.round.top) if guard.round else (START, guard.floor)
        params = {
            "seen": guard.seen, "floor_at": guard.floor[0], "floor_id": guard.floor[1], "after_at": after[0],
            "after_id": after[1], "from_at": top[0], "from_id": top[1], "limit": page_rows,
        }  # fmt: skip
        clock, *found = await self._rows("refresh", params, limit_s)
        active = guard.round.active if guard.round else bytes(clock["active"])
        modified_at, intent_id = cursor.last_modified_at, cursor.intent_id
        if found and found[-1]["is_fresh"]:
            top = self._place(found[-1])
            modified_at, intent_id = found[-1]["last_modified_at"], found[-1]["intent_id"]
        after_this = Guard(active, top)
        if len(found) == page_rows:
            after_this = Guard(guard.seen, guard.floor, Round(active, self._place(found[-1]), top))
        return Page(rows.dues(found), Cursor(modified_at, intent_id, after_this), clock["now"])
