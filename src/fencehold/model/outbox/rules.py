"""The rules of an outbox event, as a table. Backends restate these rules; the tests cite their ids.

A lease on an event is live while `locked_until > now` and lapsed once `locked_until <= now`. Every claim has a new
token: a task that lost its event, even to another claim of its own worker, cannot finish it.
"""

from __future__ import annotations

import datetime as dt
import enum
from collections.abc import Callable
from dataclasses import dataclass, replace


class Status(enum.StrEnum):
    """The values of the status column. A FAILED event will be retried; only DEAD_LETTER and COMPLETED are final."""

    PENDING = "PENDING"
    PROCESSING = "PROCESSING"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    DEAD_LETTER = "DEAD_LETTER"


class Verb(enum.Enum):
    CLAIM = "claim"
    RENEW = "renew"
    COMPLETE = "complete"
    FAIL = "fail"
    RELEASE = "release"
    REAP = "reap"
    REDRIVE = "redrive"


@dataclass(frozen=True)
class Stored:
    """The columns of one event that the rules read and write."""

    status: Status
    due_at: dt.datetime
    retry_count: int = 0
    max_retries: int = 5
    locked_until: dt.datetime | None = None
    lock_token: str | None = None
    last_error: str | None = None
    processed_at: dt.datetime | None = None
    root_cause: str | None = None
    recoveries: int | None = None  # how many of the last tries, in a row, ended with a lapsed lease; None: all tries


@dataclass(frozen=True)
class Request:
    """The arguments of a verb, which the rules read. `now` is the store's clock; a rule reads no other clock."""

    now: dt.datetime
    token: str = ""
    lease_s: float = 0.0
    error: str = ""
    delay_s: float = 0.0
    retry: bool = True
    root_cause: str = ""


#: An event that was recovered so often in a row is a suspect: it may be what kills workers. A worker handles one
#: suspect at a time, so that other events do not lose their tries together with it. A failed try shows that the worker
#: survived the event: the count starts again at 0. SQL: `retry_count > 1 AND coalesce(recoveries, 2) > 1`.
SUSPECT_RECOVERIES = 2

When = Callable[[Stored, Request], bool]
Then = Callable[[Stored, Request], Stored]


@dataclass(frozen=True)
class Rule:
    source: Status
    on: Verb
    when: When
    target: Status
    then: Then

    @property
    def id(self) -> str:
        return f"{self.source.value}.{self.on.value}.{self.when.__name__}"


def is_recovered(row: Stored) -> bool:
    """Return whether the event is PENDING again because its last worker did not finish it in time."""
    return row.status is Status.PENDING and recoveries(row.retry_count, row.recoveries) > 0


def is_suspect(recovered: bool, retry_count: int, counted: int | None) -> bool:
    """Return whether the event is a suspect: it was recovered several times in a row, so it may be what kills workers.

    `recovered`: the result of `is_recovered` before the claim. `counted`: the row's `recoveries`.
    """
    return recovered and recoveries(retry_count, counted) >= SUSPECT_RECOVERIES


def recoveries(retry_count: int, counted: int | None) -> int:
    return retry_count if counted is None else min(counted, retry_count)


def always(row: Stored, request: Request) -> bool:
    return True


def is_due(row: Stored, request: Request) -> bool:
    return row.due_at <= request.now


def is_holder(row: Stored, request: Request) -> bool:
    return row.lock_token == request.token and not has_lapsed(row, request)


def has_lapsed(row: Stored, request: Request) -> bool:
    return row.locked_until is None or row.locked_until <= request.now


def tries_left(row: Stored, request: Request) -> bool:
    """Return whether a try is left after the present one.

    The present try counts: with max_retries 5 the event is not tried again after the fifth failure.
    """
    return request.retry and row.retry_count + 1 < row.max_retries


def may_retry(row: Stored, request: Request) -> bool:
    return is_holder(row, request) and tries_left(row, request)


def is_spent(row: Stored, request: Request) -> bool:
    return is_holder(row, request) and not tries_left(row, request)


def lapsed_with_tries(row: Stored, request: Request) -> bool:
    return has_lapsed(row, request) and tries_left(row, request)


def lapsed_and_spent(row: Stored, request: Request) -> bool:
    return has_lapsed(row, request) and not tries_left(row, request)


def grant(row: Stored, request: Request) -> Stored:
    until = request.now + dt.timedelta(seconds=request.lease_s)
    return replace(row, locked_until=until, lock_token=request.token)


def extend(row: Stored, request: Request) -> Stored:
    return replace(row, locked_until=request.now + dt.timedelta(seconds=request.lease_s))


def finish(row: Stored, request: Request) -> Stored:
    """Return the event as completed. Its token stays in the row, to show which claim completed it."""
    return replace(row, locked_until=None, processed_at=request.now)


def put_off(row: Stored, request: Request) -> Stored:
    due_at = request.now + dt.timedelta(seconds=request.delay_s)
    return replace(_counted(row, request), due_at=due_at, locked_until=None, lock_token=None, recoveries=0)


def bury(row: Stored, request: Request) -> Stored:
    return replace(_counted(row, request), locked_until=None, lock_token=None, processed_at=request.now)


def hand_back(row: Stored, request: Request) -> Stored:
    """Return the event as due now, without a worker and with no try counted.

    For an event that was not begun, or whose handler a stopping worker cancelled.
    """
    return replace(row, due_at=request.now, locked_until=None, lock_token=None)


def recover(row: Stored, request: Request) -> Stored:
    counted = None if row.recoveries is None else row.recoveries + 1
    return replace(
        _counted(row, request), due_at=request.now, locked_until=None, lock_token=None, recoveries=counted
    )  # fmt: skip


def revive(row: Stored, request: Request) -> Stored:
    due_at = request.now + dt.timedelta(seconds=request.delay_s)
    return replace(
        row, due_at=due_at, retry_count=0, last_error=None, processed_at=None, root_cause=request.root_cause or None,
        recoveries=None,
    )  # fmt: skip


def _counted(row: Stored, request: Request) -> Stored:
    return replace(row, retry_count=row.retry_count + 1, last_error=request.error)


_S, _V = Status, Verb
RULES: tuple[Rule, ...] = (
    #    from            on           when               to              then
    Rule(_S.PENDING,     _V.CLAIM,    is_due,            _S.PROCESSING,  grant),
    Rule(_S.FAILED,      _V.CLAIM,    is_due,            _S.PROCESSING,  grant),
    Rule(_S.PROCESSING,  _V.RENEW,    is_holder,         _S.PROCESSING,  extend),
    Rule(_S.PROCESSING,  _V.COMPLETE, is_holder,         _S.COMPLETED,   finish),
    Rule(_S.PROCESSING,  _V.FAIL,     may_retry,         _S.FAILED,      put_off),
    Rule(_S.PROCESSING,  _V.FAIL,     is_spent,          _S.DEAD_LETTER, bury),
    Rule(_S.PROCESSING,  _V.RELEASE,  is_holder,         _S.PENDING,     hand_back),
    Rule(_S.PROCESSING,  _V.REAP,     lapsed_with_tries, _S.PENDING,     recover),
    Rule(_S.PROCESSING,  _V.REAP,     lapsed_and_spent,  _S.DEAD_LETTER, bury),
    Rule(_S.DEAD_LETTER, _V.REDRIVE,  always,            _S.PENDING,     revive),
    Rule(_S.FAILED,      _V.REDRIVE,  always,            _S.PENDING,     revive),
)  # fmt: skip


def decide(row: Stored, verb: Verb, request: Request) -> Rule | None:
    """Return the one rule that applies; None if the verb is refused."""
    return next((r for r in RULES if (r.source, r.on) == (row.status, verb) and r.when(row, request)), None)


def apply(row: Stored, verb: Verb, request: Request) -> tuple[Rule, Stored] | None:
    """Return the rule that applies and the changed row; None if the verb is refused: nothing changes."""
    rule = decide(row, verb, request)
    return (rule, replace(rule.then(row, request), status=rule.target)) if rule else None
