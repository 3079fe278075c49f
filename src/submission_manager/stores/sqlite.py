"""The service's store on SQLite: a batch is one transaction, and the schedule follows the order of commits."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Any

from fencehold import Term
from fencehold.own_tables import OwnTables, Row, Statement, Steps
from submission_manager.answers import Answers
from submission_manager.model.intents import NewIntent
from submission_manager.model.outcomes import OUTCOME_UNKNOWN
from submission_manager.ports import Cursor, Page
from submission_manager.stores import rows
from submission_manager.stores.attempts import Attempts
from submission_manager.stores.intake import Intake
from submission_manager.stores.schedule import Schedule

CLOCK = Statement("clock")


class SqliteIntake(Intake):
    def __init__(self, tables: OwnTables, answers: Answers) -> None:
        super().__init__(tables, answers, lanes=1)

    async def _stored(self, batch: list[NewIntent], left_s: Callable[[], float]) -> list[Row]:
        submits = [Statement("submit", _params(new)) for new in batch]
        return [row for found in await self._tables.run_all(submits, left_s()) for row in found]


def _params(new: NewIntent) -> dict[str, Any]:
    own = {"id": new.intent_id, "payload": new.payload or None, "hash": rows.payload_hash(new.payload)}
    return {**rows.contract_params(new.contract), **own}


class SqliteSchedule(Schedule):
    """Reads the schedule on SQLite. A cursor is the sequence number of the last write that was read."""

    start = ("", "")

    async def _horizon(self, limit_s: float) -> Cursor:
        newest = await self._rows("horizon", {}, limit_s)
        return newest[0]["modified_seq"] if newest else 0

    async def _pending(self, params: dict[str, Any], limit_s: float) -> tuple[list[Row], dt.datetime]:
        return await self._page(Statement("pending", params), limit_s)

    async def refresh(self, cursor: Cursor, page_rows: int, limit_s: float) -> Page:
        params = {"seen": cursor, "limit": page_rows}
        found, now = await self._page(Statement("refresh", params), limit_s)
        return Page(rows.dues(found), found[-1]["modified_seq"] if found else cursor, now)

    async def _page(self, statement: Statement, limit_s: float) -> tuple[list[Row], dt.datetime]:
        found, clock = await self._of(self._reader.run_all([statement, CLOCK], limit_s))
        return found, clock[0]["now"]


class SqliteAttempts(Attempts):
    def _ended(self, term: Term, ids: list[str]) -> Steps[tuple[list[Row], int]]:
        (clock,) = yield CLOCK  # one time for both: they must select the same intents
        params = {"ids": ids, "epoch": term.epoch, "holder": term.holder_id, "now": clock["now"]}
        unknown = yield Statement("expire_unknown", {**params, "error": OUTCOME_UNKNOWN})
        found = yield Statement("expire", params)
        return found, len(unknown)
