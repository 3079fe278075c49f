"""The rules for an intent after an attempt, as a table: only the answer, the contract, the count and times decide."""

from __future__ import annotations

import datetime as dt
import enum
from collections.abc import Callable
from dataclasses import dataclass, replace

from submission_manager.model.contracts import Contract, Policy
from submission_manager.model.intents import Exhausted, Status

OUTCOME_UNKNOWN = "outcome unknown"
EARLIEST = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)  # before any attempt


def no_answer(limit_s: float) -> str:
    """Return the error text of a call that timed out: the same text wherever the timeout happened."""
    return f"no answer within {limit_s:g} s"


class Answer(enum.Enum):
    """The result of a gateway call.

    ERROR is all but accepted or rejected: no answer, or an invalid one, or no reason given.
    """

    ACCEPTED = "accepted"
    REJECTED = "rejected"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Outcome:
    """One answered (or failed) gateway call; `reason` and `error` are cut to the size of their columns."""

    answer: Answer
    reason: str | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """The decision on an intent after an attempt. PENDING: try again at `retry_at`. The other statuses are final."""

    status: Status
    exhausted_reason: Exhausted | None = None
    retry_at: dt.datetime | None = None


@dataclass(frozen=True, slots=True)
class Case:
    """All that the rules decide by, for one attempt.

    `attempt_number` includes this attempt; times are the database's.
    """

    contract: Contract
    outcome: Outcome
    attempt_number: int
    created_at: dt.datetime
    finished_at: dt.datetime
    retry_delay_s: float

    @property
    def retry_at(self) -> dt.datetime:
        return self.finished_at + dt.timedelta(seconds=self.retry_delay_s)


def deadline(contract: Contract, created_at: dt.datetime) -> dt.datetime | None:
    """Return the time after which nothing is attempted or counts as accepted; None: the policy has no deadline."""
    if contract.policy is not Policy.DEADLINE or contract.max_acceptance_seconds is None:
        return None
    return created_at + dt.timedelta(seconds=contract.max_acceptance_seconds)


def is_past_deadline(case: Case) -> bool:
    until = deadline(case.contract, case.created_at)
    return until is not None and case.finished_at >= until


def retry_is_past_deadline(case: Case) -> bool:
    until = deadline(case.contract, case.created_at)
    return until is not None and case.retry_at >= until


def is_listed(case: Case) -> bool:
    return case.outcome.reason in case.contract.terminal_outcomes


def is_one_shot(case: Case) -> bool:
    return case.contract.policy is Policy.ONE_SHOT


def is_last(case: Case) -> bool:
    limit = case.contract.max_attempts
    return case.contract.policy is Policy.MAX_ATTEMPTS and limit is not None and case.attempt_number >= limit


def always(case: Case) -> bool:
    return True


@dataclass(frozen=True)
class Rule:
    on: Answer | None  # None: whatever the answer
    when: Callable[[Case], bool]
    status: Status
    exhausted_reason: Exhausted | None = None

    @property
    def id(self) -> str:
        return f"{self.on.value if self.on else 'any'}.{self.when.__name__}"


#: The first rule that applies decides.
RULES: tuple[Rule, ...] = (
    #    on               when                    then
    Rule(Answer.ACCEPTED, is_past_deadline,       Status.EXHAUSTED, Exhausted.DEADLINE_EXCEEDED),
    Rule(Answer.ACCEPTED, always,                 Status.ACCEPTED),
    Rule(Answer.REJECTED, is_listed,              Status.REJECTED),
    Rule(None,            is_one_shot,            Status.EXHAUSTED, Exhausted.ONE_SHOT),
    Rule(None,            is_last,                Status.EXHAUSTED, Exhausted.MAX_ATTEMPTS),
    Rule(None,            retry_is_past_deadline, Status.EXHAUSTED, Exhausted.DEADLINE_EXCEEDED),
    Rule(None,            always,                 Status.PENDING),
)  # fmt: skip


def judge(case: Case) -> Verdict:
    rule = next(r for r in RULES if r.on in (None, case.outcome.answer) and r.when(case))
    retry_at = case.retry_at if rule.status is Status.PENDING else None
    return Verdict(rule.status, rule.exhausted_reason, retry_at)


def timetable(case: Case) -> list[tuple[dt.datetime, Verdict]]:
    """Return the verdicts of `judge` for every possible finish time, each with the first instant at which it applies.

    A database uses the table to choose by its own clock, in one batch. `finished_at` of the case is ignored.
    """
    until = deadline(case.contract, case.created_at)
    delay = dt.timedelta(seconds=case.retry_delay_s)
    turns = [] if until is None else [until - delay, until]
    return [(at, judge(replace(case, finished_at=at))) for at in (EARLIEST, *turns)]
