"""What the service needs of its database, of a gateway and of a webhook's receiver.

Yes is a value, no is a value too, and no answer at all is Unavailable (not executed) or Uncertain (perhaps executed),
raised, as everywhere in fencehold. Every call ends within its limit.
"""

from __future__ import annotations

import datetime as dt
import enum
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from fencehold import Term
from submission_manager.model.backlog import Backlog
from submission_manager.model.contracts import Contract, Webhook
from submission_manager.model.intents import Attempt, Intent, NewIntent, Status, WebhookStatus
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


@dataclass(frozen=True, slots=True)
class Progress:
    """What a waiting client waits for: the first attempt or the end."""

    intent_id: str
    status: Status
    attempt_count: int


class FitnessPort(Protocol):
    """Whether an instance can do its work on these tables."""

    async def missing_tables(self, limit_s: float) -> list[str]:
        """Those of the service's own tables that are not there, or are old; raises when the database is not there."""
        ...

    async def rights_missing(self, limit_s: float) -> list[str]:
        """What this user may not do and the service must: `INSERT on submission_attempts`."""
        ...

    async def owner(self, lease_name: str, limit_s: float) -> str:
        """The lease that these tables belong to: this one, if there was none before."""
        ...


class IntakePort(FitnessPort, Protocol):
    async def submit(self, new: NewIntent, limit_s: float) -> Submitted:
        """Stored for sure when this returns; pending, due at once, stamped by the database's clock."""
        ...

    async def repeated(self, intent_id: str, target: str, payload: bytes | None, limit_s: float) -> Intent | None:
        """The intent that stands under this id, if it is of the same target and payload; nothing is stored."""
        ...

    async def read(self, intent_id: str, limit_s: float) -> Intent | None: ...

    async def history(self, intent_id: str, limit_s: float) -> tuple[Intent, list[Attempt]] | None: ...

    async def progress(self, intent_ids: Sequence[str], limit_s: float) -> list[Progress]:
        """Of all these in one statement; unknown ids are left out."""
        ...

    async def pending_counts(self, limit_s: float) -> Mapping[str, int]:
        """How many intents of each target are pending; targets that have none are left out."""
        ...


# --- the schedule: the leader ---


@dataclass(frozen=True, slots=True)
class Cursor:
    """How far the schedule has read: spec 000's (last_modified_at, intent_id), and the guard that makes it gap-free.

    `guard` is the database's own: rows whose writer had not committed when the last page was read are found by it.
    """

    last_modified_at: dt.datetime
    intent_id: str
    guard: Any


@dataclass(frozen=True, slots=True)
class Due:
    """One row of the schedule. `due_at` None: nothing more to do for this intent.

    `gateway_url` is the lane it runs in: a gateway that hangs keeps its own lane busy and no other. `deadline_at` is
    that of its contract: past it the intent is to be ended, whether or not its turn has come.
    """

    intent_id: str
    due_at: dt.datetime | None
    last_modified_at: dt.datetime
    gateway_url: str = ""
    submission_target: str = ""
    deadline_at: dt.datetime | None = None


@dataclass(frozen=True, slots=True)
class Page:
    """Rows in cursor order, the cursor after them, and the database's clock when they were read."""

    rows: list[Due]
    cursor: Cursor
    now: dt.datetime


@dataclass(frozen=True, slots=True)
class LeftOpen:
    """Attempts that an earlier leader began and nobody recorded: how many, and the first of them by id and number."""

    attempts: int
    first: list[tuple[str, int]]


class SchedulePort(Protocol):
    def rebuild(self, page_rows: int, limit_s: float) -> AsyncIterator[Page]:
        """Every pending intent; the cursor of the last page is where `refresh` goes on. Each page within the limit."""
        ...

    async def refresh(self, cursor: Cursor, page_rows: int, limit_s: float) -> Page:
        """What changed since; repeats are possible, gaps are not. A full page: ask again at once."""
        ...

    async def left_open(self, term: Term, most: int, limit_s: float) -> LeftOpen:
        """What was left by others than this term; at most so many of it by name."""
        ...

    def on_submitted(self, hint: Callable[[], None]) -> None:
        """Hints that something was submitted, on the loop that asked; never the truth."""
        ...

    async def listen(self, limit_s: float) -> bool:
        """False where the database cannot tell."""
        ...


# --- attempts: the leader, each write one fenced transaction of its term ---


def attempt_key(intent_id: str, attempt_number: int) -> str:
    """By which the provider knows it."""
    return f"{intent_id}/{attempt_number}"


@dataclass(frozen=True, slots=True)
class Started:
    """The start is on record under this epoch; only now may the gateway be called. `key` is stable per attempt."""

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
    """No attempt: not due yet (then `due_at` says when), over already, or just ended by this very call."""

    status: Status | None  # None: there is no such intent
    due_at: dt.datetime | None = None
    over: Over | None = None
    unknown_outcome: bool = False  # an earlier leader's attempt was found begun and never recorded: now it is


@dataclass(frozen=True, slots=True)
class Over:
    """An intent that reached its end in the transaction just committed."""

    intent: Intent
    webhook: Webhook | None


@dataclass(frozen=True, slots=True)
class Recorded:
    """What the fenced record made of the intent: pending again at `due_at`, or over."""

    status: Status
    finished_at: dt.datetime
    due_at: dt.datetime | None = None
    over: Over | None = None


@dataclass(frozen=True, slots=True)
class Expired:
    """What became of intents that were to be ended: ended just now, or still pending; all others were over already."""

    over: list[Over]
    pending: list[str]  # not past their deadline by the database's clock, or locked by somebody else
    unknown: int = 0  # attempts of earlier leaders that were found begun and never recorded: now they are


class AttemptPort(Protocol):
    """LeaseLost: the fence refused, and nothing was written; the caller drops leadership.

    Unavailable with the code `locked` or `canceled`: somebody else kept locked what this write needs, or it took longer
    than the database lets it. Nothing was written, and the caller tries again, later.
    """

    async def start(self, term: Term, intent_id: str, retry_delay_s: float) -> Started | NotNow:
        """In one fenced transaction: still pending and due by the database's clock? Deadline passed: exhausted.

        A start of an earlier epoch that nobody recorded becomes an attempt with error "outcome unknown", then policy.
        Else the start marker is written, and only then is the attempt Started.
        """
        ...

    async def record(self, term: Term, started: Started, outcome: Outcome, retry_delay_s: float) -> Recorded:
        """In one fenced transaction: the attempt appended, the intent moved on as model/outcomes.py judges.

        The database's clock says when it finished. Whatever a gateway said fits: too long is cut.
        """
        ...

    async def expire(self, term: Term, intent_ids: Sequence[str]) -> Expired:
        """In one fenced transaction: those past their deadline by the database's clock are exhausted.

        Only for intents that nobody has in hand. A start that an earlier leader left behind is counted first, as an
        attempt with error "outcome unknown". Waits for no row that somebody else has locked.
        """
        ...

    async def owed_webhooks(self, limit: int, limit_s: float) -> list[Over]:
        """Ended intents whose webhook was neither delivered nor given up."""
        ...

    async def backlog(self, late_s: int, rows_max: int, limit_s: float) -> Backlog:
        """`late_s`: from then on what is due is overdue."""
        ...

    async def record_webhook(self, term: Term, intent_id: str, status: WebhookStatus, error: str | None) -> None: ...


class IntentStore(Protocol):
    """One database, for one event loop."""

    @property
    def intake(self) -> IntakePort: ...

    @property
    def schedule(self) -> SchedulePort: ...

    @property
    def attempts(self) -> AttemptPort: ...

    async def open(self) -> None: ...

    async def init(self) -> list[str]: ...

    def script(self) -> str:
        """What `init` runs, as text; nothing is opened."""
        ...

    async def close(self) -> None: ...


# --- the world outside ---


class GatewayPort(Protocol):
    async def submit(self, started: Started, limit_s: float) -> Outcome:
        """One call, never repeated here; whatever goes wrong is an Outcome with answer ERROR. Never raises."""
        ...


class WebhookPort(Protocol):
    async def send(self, over: Over, limit_s: float) -> str | None:
        """None: delivered. Else why not. Never raises."""
        ...
