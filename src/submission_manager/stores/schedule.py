"""Reads the schedule. Databases differ only in how they guard the cursor and write the place where a page begins."""

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
    """A SchedulePort with a connection of its own; `refresh` is each database's own."""

    start: Place

    def __init__(self, reader: Reader, answers: Answers) -> None:
        super().__init__(reader, answers)
        self._reader = reader

    async def rebuild(self, page_rows: int, limit_s: float) -> AsyncIterator[Page]:
        """Read the pending intents page by page. The next refresh finds the rows that change meanwhile."""
        cursor, after = await self._horizon(limit_s), self.start
        while True:
            found, now = await self._pending({"after_at": after[0], "after_id": after[1], "limit": page_rows}, limit_s)
            yield Page(rows.dues(found), cursor, now)
            if len(found) < page_rows:
                return
            after = self._place(found[-1])

    async def _horizon(self, limit_s: float) -> Cursor:
        """The cursor from which the refreshes after this rebuild continue."""
        raise NotImplementedError

    async def _pending(self, params: dict[str, Any], limit_s: float) -> tuple[list[Row], dt.datetime]:
        """One page of the pending intents, and the database's clock."""
        raise NotImplementedError

    def _place(self, row: Row) -> Place:
        """Where the page after this row begins."""
        return row["place"], row["intent_id"]

    async def left_open(self, term: Term, most: int, limit_s: float) -> LeftOpen:
        params = {"epoch": term.epoch, "holder": term.holder_id, "limit": most}
        return rows.left_open(await self._rows("left_open", params, limit_s))

    def on_submitted(self, hint: Callable[[], None]) -> None:
        self._reader.on_hint(hint)

    async def listen(self, limit_s: float) -> bool:
        return await self._of(self._reader.listen(limit_s))
