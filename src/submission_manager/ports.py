"""What the service needs from its database, from a gateway and from a webhook's receiver.

As everywhere in fencehold, both yes and no are return values. If the database does not answer, the call raises
Unavailable (not executed) or Uncertain (perhaps executed). Every call ends within its limit.
"""

from __future__ import annotations

import datetime as dt
import enum
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from fencehold import Term
from submission_manager.model.contracts import Contract, Webhook
from submission_manager.model.intents import Attempt, Backlog, Intent, NewIntent, Status, WebhookStatus
from submission_manager.model.outcomes import Outcome

# --- intake: any instance ---


class Submission(enum.Enum):
    CREATED = "created"
    KNOWN = "known"  # same id, same target, the same payload byte for byte
    CONFLICT = "conflict"  # same id, something else


@dataclass(frozen=True, slots=True)
class Submitted:
    kind: Submission
    intent: Intent  # as it stands in the database, also in a conflict


class FitnessPort(Protocol):
    """Answers whether an instance can do its work on these tables: their presence, its rights, their lease."""

    async def missing_tables(self, limit_s: float) -> list[str]:
        """Return the names of the service's own tables that are missing or old.

        Raises if the database does not exist.
        """

    async def rights_missing(self, limit_s: float) -> list[str]:
        """Return the rights that the service needs and this user lacks, such as `INSERT on submission_attempts`."""

    async def owner(self, lease_name: str, limit_s: float) -> str:
        """Return the name of the lease that owns these tables; record `lease_name` as the owner if there is none."""


class IntakePort(FitnessPort, Protocol):
    async def submit(self, new: NewIntent, limit_s: float) -> Submitted:
        """Store the intent: it is stored for sure when this returns. It is pending and due at once.

        The database's clock sets its times.
        """

    async def repeated(self, intent_id: str, target: str, payload: bytes | None, limit_s: float) -> Intent | None:
        """Return the stored intent of this id if its target and payload are the same, else None. Stores nothing."""

    async def read(self, intent_id: str, limit_s: float) -> Intent | None: ...

    async def history(self, intent_id: str, limit_s: float) -> tuple[Intent, list[Attempt]] | None: ...

    async def moved(self, intent_ids: Sequence[str], limit_s: float) -> list[str]:
        """Return the ids of those of these intents that were attempted or are over, read in one statement."""

    async def pending_counts(self, limit_s: float) -> Mapping[str, int]:
        """Return how many intents of each target are pending; targets that have none are left out."""


# --- the schedule: the leader ---


#: How far the schedule has read: spec 000's (last_modified_at, intent_id), and with it what finds the rows whose writer
#: had not committed when the last page was read. Each database has its own, and nobody else looks into it.
Cursor = Any


class Due(NamedTuple):
    """One row of the schedule: an intent and when it is due.

    `due_at` None: there is nothing more to do for this intent. `gateway_url` names the intent's lane, the queue of one
    gateway: a gateway that hangs blocks only its own lane. `deadline_at` is the deadline of the intent's contract:
    after it the intent is ended, whether or not its turn has come.
    """

    intent_id: str
    due_at: dt.datetime | None
    last_modified_at: dt.datetime
    gateway_url: str = ""
    submission_target: str = ""
    deadline_at: dt.datetime | None = None


@dataclass(frozen=True, slots=True)
class Page:
    """One page of the schedule: rows in cursor order, the cursor after them, and the database's clock when read."""

    rows: list[Due]
    cursor: Cursor
    now: dt.datetime


@dataclass(frozen=True, slots=True)
class LeftOpen:
    """Attempts that an earlier leader began and nobody recorded.

    It has their count, and the intent id and the number of the first.
    """

    attempts: int
    first: list[tuple[str, int]]


class SchedulePort(Protocol):
    def rebuild(self, page_rows: int, limit_s: float) -> AsyncIterator[Page]:
        """Read every pending intent, page by page; each page within the limit.

        `refresh` continues from the cursor of the last page.
        """

    async def refresh(self, cursor: Cursor, page_rows: int, limit_s: float) -> Page:
        """Return a page of the rows changed since `cursor`: a row may be repeated, but none is missed.

        If the page is full, there may be more rows: call again at once.
        """

    async def left_open(self, term: Term, most: int, limit_s: float) -> LeftOpen:
        """Return the attempts that other terms began and nobody recorded; names at most `most` of them."""

    def on_submitted(self, hint: Callable[[], None]) -> None:
        """Call `hint`, on the caller's event loop, when an intent was submitted.

        It is only a hint: the call may fail to come.
        """

    async def listen(self, limit_s: float) -> bool:
        """Start to listen for submissions. Returns False if this database cannot notify."""


# --- attempts: the leader, each write one fenced transaction of its term ---


def attempt_key(intent_id: str, attempt_number: int) -> str:
    """Return the key by which the provider recognises this attempt."""
    return f"{intent_id}/{attempt_number}"


@dataclass(frozen=True, slots=True)
class Started:
    """The result of a start that was recorded under this epoch; only now may the gateway be called.

    `key` stays the same however often this attempt is sent.
    """

    intent_id: str
    attempt_number: int
    contract: Contract
    payload: bytes | None
    created_at: dt.datetime
    started_at: dt.datetime

    @property
    def key(self) -> str:
        return attempt_key(self.intent_id, self.attempt_number)


@dataclass(frozen=True, slots=True)
class NotNow:
    """The result of a start if no attempt is to be made: not due yet (`due_at` is set), over already, or just ended."""

    status: Status | None  # None: there is no such intent
    due_at: dt.datetime | None = None
    over: Over | None = None
    unknown_outcome: bool = False  # an earlier leader had begun an attempt without recording it: this call recorded it


@dataclass(frozen=True, slots=True)
class Over:
    """An intent whose end was recorded in the transaction that was just committed."""

    intent: Intent
    webhook: Webhook | None


@dataclass(frozen=True, slots=True)
class Recorded:
    """The intent after an attempt's outcome was recorded: pending again, due at `due_at`, or over."""

    status: Status
    finished_at: dt.datetime
    due_at: dt.datetime | None = None
    over: Over | None = None


@dataclass(frozen=True, slots=True)
class Expired:
    """The result of ending intents: those ended just now, and those still pending.

    All other intents were over already.
    """

    over: list[Over]
    pending: list[str]  # not past their deadline by the database's clock, or locked by somebody else
    unknown: int = 0  # attempts that earlier leaders had begun without recording them: this call recorded them


class AttemptPort(Protocol):
    """The executor's reads and fenced writes.

    A write raises LeaseLost if the fence refused it: nothing was written, and the caller drops leadership. It raises
    Unavailable with the code `locked` or `canceled` if another session held a lock this write needs, or the write took
    longer than the database allows: nothing was written, and the caller tries again later.
    """

    async def start(self, term: Term, intent_id: str, retry_delay_s: float) -> Started | NotNow:
        """Start an attempt, in one fenced transaction, if the intent is still pending and due by the database's clock.

        Returns Started if the start was recorded, NotNow if no attempt is to be made. An intent past its deadline
        becomes exhausted. If an earlier epoch started an attempt that nobody recorded, an attempt with error "outcome
        unknown" is recorded for it, and the policy decides what follows.
        """

    async def record(self, term: Term, started: Started, outcome: Outcome, retry_delay_s: float) -> Recorded:
        """In one fenced transaction, append the attempt and set the intent's new state as model/outcomes.py decides.

        The finish time is the database's. A gateway's text that is too long is cut.
        """

    async def expire(self, term: Term, intent_ids: Sequence[str]) -> Expired:
        """In one fenced transaction, end as exhausted those intents whose deadline has passed by the database's clock.

        Call it only for intents with no attempt under way. A start that an earlier leader left behind is recorded
        first, as an attempt with error "outcome unknown". Never waits for a row that another session has locked.
        """

    async def owed_webhooks(self, limit: int, limit_s: float) -> list[Over]:
        """Return ended intents whose webhook is neither delivered nor given up."""

    async def backlog(self, late_s: int, rows_max: int, limit_s: float) -> Backlog:
        """Count the overdue intents: those that have been due for `late_s`. Counts at most `rows_max` of them."""

    async def record_webhook(self, term: Term, intent_id: str, status: WebhookStatus, error: str | None) -> None: ...


# --- the world outside ---


class GatewayPort(Protocol):
    async def submit(self, started: Started, limit_s: float) -> Outcome:
        """Make one call and never repeat it. Never raises: any failure is an Outcome with answer ERROR."""


class WebhookPort(Protocol):
    async def send(self, over: Over, limit_s: float) -> str | None:
        """Send the webhook once. Returns None if it was delivered, else the reason why not. Never raises."""
