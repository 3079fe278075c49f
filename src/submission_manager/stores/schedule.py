"""Reads the schedule. Databases differ only in how they guard the cursor and write the place where a page begins.

The cursor is where the last reading ended; it must not miss a row whose transaction commits later.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import AsyncIterator, Callable
from typing import Any

from fencehold import Term
from fencehold.own_tables import Reader, Row
from submission_manager.answers import Answers
from submission_manager.ports import Cursor, LeftOpen, Page, SchedulePort
from submission_manager.stores import rows
from submission_manager.stores.asking import Asking

#: An instant, as this database writes it into a row or takes it from a parameter, and an id.
Place = tuple[Any, str]


class Schedule(Asking, SchedulePort):
    """Reads the schedule (SchedulePort) on a connection of its own; each database has its own `refresh`."""

    start: Place

    def __init__(self, reader: Reader, answers: Answers) -> None:
        super().__init__(reader, answers)
        self._reader = reader

    async def rebuild(self, page_rows: int, limit_s: float) -> AsyncIterator[Page]:
        """Read the pending intents page by page. Rows that change meanwhile are found by the next refresh."""
        cursor, after = await self._horizon(limit_s), self.start
        while True:
            found, now = await self._pending({"after_at": after[0], "after_id": after[1], "limit": page_rows}, limit_s)
            yield Page(rows.dues(found), cursor, now)
            if len(found) < page_rows:
                return
            after = self._place(found[-1])

    async def _horizon(self, limit_s: float) -> Cursor:
        """Return the cursor from which the refreshes after this rebuild continue."""
        raise NotImplementedError

    async def _pending(self, params: dict[str, Any], limit_s: float) -> tuple[list[Row], dt.datetime]:
        """Return one page of the pending intents, and the database's clock."""
        raise NotImplementedError

    def _place(self, row: Row) -> Place:
        """Return where the page after this row begins."""
        return row["place"], row["intent_id"]

    async def left_open(self, term: Term, most: int, limit_s: float) -> LeftOpen:
        params = {"epoch": term.epoch, "holder": term.holder_id, "limit": most}
        return rows.left_open(await self._rows("left_open", params, limit_s))

    def on_submitted(self, hint: Callable[[], None]) -> None:
        self._reader.on_hint(hint)

    async def listen(self, limit_s: float) -> bool:
        return await self._of(self._reader.listen(limit_s))
