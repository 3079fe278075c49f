"""The service's store on SQL Server: each write of the executor is one batch, so that a frozen process keeps no lock.

So Python decides nothing between two statements. The rules are computed before, for every possible finish time of the
attempt, and the batch chooses the verdict by the database's clock.

The schedule is read by spec 000's cursor, and by the row version to find the rows the cursor would miss. A row is
behind the cursor and unread only if its write was still active when the last reading began. Its version is then at or
above the lowest active version of that moment, and the next reading selects all of those. No row is missed, however
long a transaction stays open; while it is open, rows written since it began are read again at every refresh. A refresh
of several pages is a round: the next round starts from the lowest active version before this round's first page.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fencehold import ConfigurationError, Term, Unavailable
from fencehold.own_tables import Row, Statement, Steps
from submission_manager.model.intents import Exhausted, NewIntent, Status
from submission_manager.model.outcomes import EARLIEST, OUTCOME_UNKNOWN, Case, Outcome, timetable
from submission_manager.ports import Cursor, Expired, NotNow, Page, Recorded, Started, Submitted
from submission_manager.stores import rows
from submission_manager.stores.attempts import (
    UNKNOWN,
    Attempts,
    Locked,
    Marker,
    ended,
    error_text,
    left_behind,
    locked,
    said,
    started_of,
)
from submission_manager.stores.intake import Intake
from submission_manager.stores.schedule import Place, Schedule

CONFLICTS_MAX = 20
NO_NUMBER = 0  # stands for None where a number is needed

#: The server's instants are finer than Python's, and it orders ids in its own way: so places are texts that are sent
#: back to it unchanged, and never compared here.
START: Place = ("1970-01-01T00:00:00", "")


# --- intake: comparisons ignore blanks at the end, and the driver takes no lists ---


class SqlServerIntake(Intake):
    async def submit(self, new: NewIntent, limit_s: float) -> Submitted:
        rows.check_id(new.intent_id)
        if not self._is_kept(new.intent_id):
            raise ConfigurationError(
                "SQL Server cannot tell an id that ends with a blank from the one without it.", code="bad_intent_id"
            )
        return await super().submit(new, limit_s)

    def _is_kept(self, intent_id: str) -> bool:
        return super()._is_kept(intent_id) and not intent_id.endswith(" ")

    async def _stored_group(self, group: list[NewIntent], left_s: Callable[[], float]) -> list[Row]:
        """Store the group with one statement. It stores nothing if another submission stores one of the ids first.

        The statement is then repeated, and finds the row of that submission.
        """
        params = submission(group)
        for _ in range(CONFLICTS_MAX):
            try:
                return await self._rows("submit", params, left_s(), is_promise=True)
            except Unavailable as error:
                if error.code != "conflict":
                    raise
                fault = error
        raise fault


def submission(group: list[NewIntent]) -> dict[str, Any]:
    """Return the parameters of the statement `submit`, for intents of one contract."""
    params = rows.contract_params(group[0].contract)
    limits = {name: params[name] or NO_NUMBER for name in ("max_acceptance_seconds", "max_attempts")}
    return {**params, **limits, **_packed(group)}


def _packed(group: list[NewIntent]) -> dict[str, Any]:
    """Pack a group into two parameters: a list cannot hold bytes, so hashes and payloads are in one byte string.

    The list holds the ids, and for each the start of its bytes and the length of its payload.
    """
    given, parts, place = [], [], 1
    for new in group:
        payload = new.payload or b""
        given.append({"id": new.intent_id, "from": place, "length": len(payload)})
        parts += [rows.payload_hash(new.payload), payload]
        place += len(parts[-2]) + len(payload)
    return {"given": given, "bytes": b"".join(parts)}


# --- attempts ---


class SqlServerAttempts(Attempts):
    def _start(self, term: Term, intent_id: str, retry_delay_s: float) -> Steps[Started | NotNow]:
        (row,) = yield Statement("mark", {"id": intent_id})
        if row["status"] is None:
            return NotNow(None)
        found = locked(intent_id, row)
        if row["verdict"] == "started":
            return started_of(found, found.now)
        if row["verdict"] == "over":
            late = Exhausted.DEADLINE_EXCEEDED
            over = ended(found, found.status, found.attempt_count, found.now, exhausted_reason=late)
            return NotNow(found.status, over=over)
        return (yield from self._unmarked(term, found, retry_delay_s))

    def _unmarked(self, term: Term, found: Locked, retry_delay_s: float) -> Steps[Started | NotNow]:
        """Return the answer to a start whose batch wrote no marker, which is the record of a started attempt.

        If this same term wrote a marker before, the answer may still be Started. If another term left a marker, the
        attempt of that marker is recorded first.
        """
        if found.status is not Status.PENDING:
            return NotNow(found.status)
        if found.marker is None:
            return NotNow(Status.PENDING, found.due_at)
        if found.marker.is_of(term):
            return self._begun(term, found, found.marker)
        left = started_of(found, found.marker.started_at)
        recorded = yield from self._settled(left, found.marker, UNKNOWN, retry_delay_s)
        # None: the row changed between the two batches, and the next start sees the new state.
        return NotNow(Status.PENDING) if recorded is None else left_behind(recorded)

    def _record(self, term: Term, started: Started, outcome: Outcome, retry_delay_s: float) -> Steps[Recorded | None]:
        own = Marker(started.started_at, term.epoch, term.holder_id)
        recorded = yield from self._settled(started, own, outcome, retry_delay_s)
        return recorded or (yield from self._recorded_before(term, started, retry_delay_s))

    def _settled(
        self, started: Started, marker: Marker, outcome: Outcome, retry_delay_s: float
    ) -> Steps[Recorded | None]:
        """Record the attempt and set the intent's new state.

        Returns None if the attempt's marker is no longer there.
        """
        texts = said(outcome)
        params = {
            "id": started.intent_id, "number": started.attempt_number, "marker_epoch": marker.epoch,
            "marker_holder": marker.holder_id, "verdicts": _verdicts(started, outcome, retry_delay_s),
            "retry_us": round(retry_delay_s * 1_000_000), "error": error_text(outcome), **texts,
        }  # fmt: skip
        (row,) = yield Statement("settle", params, may_repeat=False)
        if row["verdict"] == "unmarked":
            return None
        status, now = Status(row["status"]), row["now"]
        if status is Status.PENDING:
            return Recorded(status, now, row["next_attempt_at"])
        over = ended(started, status, started.attempt_number, now, texts["outcome_reason"], row["exhausted_reason"])
        return Recorded(status, now, over=over)

    def _expire(self, term: Term, ids: list[str]) -> Steps[Expired]:
        found = yield Statement("expire", {"ids": ids, "error": OUTCOME_UNKNOWN})
        over = [rows.over(row) for row in found if row["is_over"]]
        pending = [row["intent_id"] for row in found if not row["is_over"] and row["status"] in (None, Status.PENDING)]
        return Expired(over, pending, sum(row["unknown"] for row in found))


def _verdicts(started: Started, outcome: Outcome, retry_delay_s: float) -> list[dict[str, Any]]:
    case = Case(started.contract, outcome, started.attempt_number, started.created_at, EARLIEST, retry_delay_s)
    return [
        {"from_at": at, "status": one.status.value, "exhausted_reason": one.exhausted_reason}
        for at, one in timetable(case)
    ]


# --- the schedule ---


@dataclass(frozen=True, slots=True)
class Guard:
    """The cursor of the schedule on SQL Server: all row versions below `seen` have been read.

    A round is a refresh of several pages. `floor` is the place, by time and id, that the reading had reached when the
    round began. `round` is set only inside a round.
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
        return Guard(bytes(row["active"]), START if row["place"] is None else self._place(row))

    async def _pending(self, params: dict[str, Any], limit_s: float) -> tuple[list[Row], dt.datetime]:
        found = await self._rows("pending", params, limit_s)
        clock = found or await self._rows("probe", {}, limit_s)
        return found, clock[0]["now"]

    async def refresh(self, cursor: Cursor, page_rows: int, limit_s: float) -> Page:
        guard: Guard = cursor
        after, top = (guard.round.after, guard.round.top) if guard.round else (START, guard.floor)
        params = {
            "seen": guard.seen, "floor_at": guard.floor[0], "floor_id": guard.floor[1], "after_at": after[0],
            "after_id": after[1], "from_at": top[0], "from_id": top[1], "limit": page_rows,
        }  # fmt: skip
        clock, *found = await self._rows("refresh", params, limit_s)
        active = guard.round.active if guard.round else bytes(clock["active"])
        if found and found[-1]["is_fresh"]:
            top = self._place(found[-1])
        after_this = Guard(active, top)
        if len(found) == page_rows:
            after_this = Guard(guard.seen, guard.floor, Round(active, self._place(found[-1]), top))
        return Page(rows.dues(found), after_this, clock["now"])
