"""The service's store on PostgreSQL: a batch is stored by one statement, and the schedule is read by snapshots.

A row is behind the cursor and unread if its writer had not committed in the snapshot of the last reading. The row's
modified_xid shows exactly that: no row is missed, however long a transaction stays open, and none is read twice.
A refresh of several pages is a round: the next round starts from the snapshot of this round's first page.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from fencehold.own_tables import OwnTables, Row
from submission_manager.answers import Answers
from submission_manager.model.contracts import Contract
from submission_manager.model.intents import NewIntent
from submission_manager.ports import Cursor, Due, Page
from submission_manager.stores import rows
from submission_manager.stores.intake import Intake
from submission_manager.stores.schedule import Place, Schedule

CONTRACTS_KEPT_MAX = 1000
START: Place = (dt.datetime(1970, 1, 1, tzinfo=dt.UTC), "")


class PostgresIntake(Intake):
    def __init__(self, tables: OwnTables, answers: Answers) -> None:
        super().__init__(tables, answers)
        self._contracts: dict[int, tuple[Contract, Mapping[str, Any]]] = {}

    async def _stored_group(self, group: list[NewIntent], left_s: Callable[[], float]) -> list[Row]:
        # Always in the same order: otherwise two lanes with the same ids could deadlock.
        news = sorted(group, key=lambda new: new.intent_id)
        params = {
            **self._contract_params(group[0].contract), "ids": [new.intent_id for new in news],
            "payloads": [new.payload or None for new in news],
            "hashes": [rows.payload_hash(new.payload) for new in news],
        }  # fmt: skip
        return await self._rows("submit", params, left_s(), is_promise=True)

    def _contract_params(self, contract: Contract) -> Mapping[str, Any]:
        """Return the contract's parameters, computed once for each: there are few, but every submission needs one."""
        kept = self._contracts.get(id(contract))
        if kept is None:
            if len(self._contracts) >= CONTRACTS_KEPT_MAX:
                self._contracts.clear()
            # The contract is kept too, so that no other object gets its id().
            kept = self._contracts[id(contract)] = (contract, rows.contract_params(contract))
        return kept[1]


@dataclass(frozen=True, slots=True)
class Guard:
    """The cursor of the schedule on PostgreSQL: all rows visible in the snapshot `seen` have been read.

    A round is a refresh of several pages. `floor` is the place, by time and id, that the reading had reached when the
    round began. `next_seen` is set only inside a round: the snapshot of its first page; `after` is then the last row
    read in it.
    """

    seen: str
    floor: Place
    next_seen: str | None = None
    after: Place = START


class PostgresSchedule(Schedule):
    start = START

    async def _horizon(self, limit_s: float) -> Cursor:
        (row,) = await self._rows("horizon", {}, limit_s)
        floor = START if row["last_modified_at"] is None else (row["last_modified_at"], row["intent_id"])
        return Guard(row["snapshot"], floor)

    async def _pending(self, params: dict[str, Any], limit_s: float) -> tuple[list[Row], dt.datetime]:
        found, now, _ = _sorted(await self._rows("pending", params, limit_s))
        return found, now

    def _place(self, row: Row) -> Place:
        return row["next_attempt_at"], row["intent_id"]

    async def refresh(self, cursor: Cursor, page_rows: int, limit_s: float) -> Page:
        guard: Guard = cursor
        after = guard.after
        start = max(after, guard.floor)
        params = {
            "seen": guard.seen, "from_at": start[0], "from_id": start[1], "after_at": after[0], "after_id": after[1],
            "floor_at": guard.floor[0], "floor_id": guard.floor[1], "limit": page_rows,
        }  # fmt: skip
        found, now, snapshot = _sorted(await self._rows("refresh", params, limit_s))
        due = sorted(rows.dues(found), key=_modified)
        place = _modified(due[-1]) if due else after
        next_seen = guard.next_seen or snapshot
        if len(due) == page_rows:
            return Page(due, Guard(guard.seen, guard.floor, next_seen, place), now)
        return Page(due, Guard(next_seen, max(place, guard.floor)), now)


def _modified(due: Due) -> Place:
    return due.last_modified_at, due.intent_id


def _sorted(found: list[Row]) -> tuple[list[Row], dt.datetime, str]:
    """Split the found rows: return the schedule's rows, and the time and the snapshot from the clock's own row."""
    place = next(place for place in reversed(range(len(found))) if found[place]["snapshot"] is not None)
    clock = found.pop(place)  # usually the last
    return found, clock["last_modified_at"], clock["snapshot"]
