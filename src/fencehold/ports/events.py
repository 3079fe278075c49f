"""Events of one outbox. The rules are in model/events.py; a verb is one statement (or one transaction) and one limit.

Two faces: what workers and the reaper call all the time, and what an operator asks now and then.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol

from fencehold.model.json_types import J
from fencehold.model.outbox.events import Status
from fencehold.model.outbox.new_events import NewEvent
from fencehold.ports.schema import SchemaPort


@dataclass(slots=True, eq=False)
class Claim(Generic[J]):
    """One event held under a lease until `locked_until` (store time), by this token alone.

    `Event[Order]` says to a type checker what the payload is, such as a TypedDict; nothing checks it when it runs.
    """

    id: int
    tracking_id: str
    event_type: str
    payload_json: str = field(repr=False)
    token: str = ""
    locked_until: dt.datetime | None = None
    attempt: int = 1
    max_retries: int = 5
    aggregate_id: str | None = None
    aggregate_type: str | None = None
    metadata_json: str | None = field(default=None, repr=False)
    priority: int = 0
    created_at: dt.datetime | None = None
    lease_s: float = 0.0  # what it was claimed for; 0: what its outbox is set to
    recovered: bool = False  # a worker had it before, and neither finished it nor said why
    is_suspect: bool = False  # recovered twice in a row: it may be what killed its workers

    @property
    def payload(self) -> J:
        """As it was added; decoded when it is read."""
        found: J = json.loads(self.payload_json)
        return found

    @property
    def metadata(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.metadata_json) if self.metadata_json else {}
        return found

    @property
    def key(self) -> ClaimKey:
        return ClaimKey(self.id, self.token, self.tracking_id)


#: What a handler is called with: the event, and this worker's claim on it.
Event = Claim


@dataclass(frozen=True, slots=True)
class ClaimKey:
    """What a renewal, a completion and a failure compare."""

    id: int
    token: str
    tracking_id: str = field(default="", compare=False)


class Key(Protocol):
    """A ClaimKey, or the Claim itself: what names one hold on one event."""

    @property
    def id(self) -> int: ...
    @property
    def token(self) -> str: ...
    @property
    def tracking_id(self) -> str: ...


@dataclass(frozen=True, slots=True)
class ClaimAsk:
    """Up to `limit` due events, the most urgent first, of these types (None: all), under this token for `lease_s`.

    `in_order`: of each aggregate only the oldest unfinished event, and none while another of it is held.
    `sweep`: look at everything that is due, not only at what came after the last claim (a backend may not need to);
    `patient`: if that has become slow, at a later claim instead.
    `suspects_max`: at most so many suspects (None: all): events that were recovered twice in a row, or more often.
    """

    limit: int
    token: str
    lease_s: float
    event_types: tuple[str, ...] | None = None
    in_order: bool = False
    sweep: bool = True
    patient: bool = False
    suspects_max: int | None = None


@dataclass(frozen=True, slots=True)
class Turn:
    """What one round trip did: the keys that were completed, and the events claimed."""

    completed: Sequence[Any]
    claims: list[Claim]


@dataclass(frozen=True, slots=True)
class Failure:
    """One failed try. `retry=False` goes to the dead letters at once, whatever tries are left."""

    key: ClaimKey
    error: str
    delay_s: float
    retry: bool = True


@dataclass(frozen=True, slots=True)
class Recovered:
    """One event whose lease had lapsed: `status` is PENDING again, or DEAD_LETTER when its tries are spent."""

    id: int
    tracking_id: str
    event_type: str
    status: Status
    retry_count: int
    stale_s: float
    token: str


@dataclass(frozen=True, slots=True)
class Stats:
    """One look at the table. `oldest_pending_age_s` counts from when the oldest claimable event became due."""

    pending: int
    processing: int
    completed: int
    failed: int
    dead_letter: int
    oldest_pending_age_s: float
    lapsed: int = 0
    reaper_ran_s_ago: float | None = None
    reaper_runs: int = 0


@dataclass(frozen=True, slots=True)
class EventRow:
    """One event as it stands, for people. `waits_s` is how long until it is due, `held_s` until its lease ends."""

    id: int
    tracking_id: str
    event_type: str
    aggregate_id: str | None
    aggregate_type: str | None
    payload: str
    metadata: str | None
    status: Status
    priority: int
    created_at: dt.datetime
    due_at: dt.datetime
    processed_at: dt.datetime | None
    retry_count: int
    max_retries: int
    locked_until: dt.datetime | None
    lock_token: str | None
    last_error: str | None
    root_cause: str | None
    waits_s: float
    held_s: float | None


@dataclass(frozen=True, slots=True)
class Filter:
    """Which events an operator means; empty fields mean all."""

    statuses: tuple[Status, ...] = ()
    event_types: tuple[str, ...] = ()
    tracking_ids: tuple[str, ...] = ()
    older_than_s: float | None = None


class EventPort(Protocol):
    """Refused keys are left out of the answer; no answer at all is Unavailable (not executed) or Uncertain, raised."""

    async def add(self, events: Iterable[NewEvent], limit_s: float) -> list[str]:
        """The tracking ids that were new; one already known is left alone and left out. One hint for all of them.

        All or none: when making one of them fails, that error is raised and nothing is stored.
        """
        ...

    def add_in(self, target: object, events: Sequence[NewEvent], outbox_id: str) -> Awaitable[list[str]]:
        """The same inside the caller's own transaction, on the caller's connection or session.

        `outbox_id` is what `identity` answered: a connection to another database is refused (wrong_store).
        """
        ...

    async def turn(self, completed: Sequence[Key], ask: ClaimAsk | None, limit_s: float) -> Turn:
        """Complete these and claim the next, in one round trip where the database can."""
        ...

    async def renew(self, keys: Sequence[ClaimKey], lease_s: float, limit_s: float) -> dict[ClaimKey, dt.datetime]:
        """Until when those are held that still are; a row another session had locked for longer is left out too."""
        ...

    async def fail(self, failures: Sequence[Failure], limit_s: float) -> list[tuple[ClaimKey, Status]]: ...

    async def release(self, keys: Sequence[ClaimKey], limit_s: float) -> list[ClaimKey]:
        """Give back what was not begun, or was called off by a worker that stops: due at once, no try counted."""
        ...

    async def reap(self, limit: int, limit_s: float) -> list[Recovered]:
        """Recover up to `limit` lapsed events, the longest lapsed first; the run itself is recorded."""
        ...


class EventAdmin(Protocol):
    """What an operator asks. `dry_run` answers the same and changes nothing."""

    async def stats(self, limit_s: float, whole: bool = True) -> Stats:
        """Without `whole` the completed are not counted (0): there may be millions."""
        ...

    async def find(self, which: Filter, limit: int, limit_s: float) -> list[EventRow]:
        """Up to `limit` of them, the newest first."""
        ...

    async def redrive(
        self, which: Filter, root_cause: str, limit: int, spread_s: float, limit_s: float, dry_run: bool = False
    ) -> list[str]:
        """Tracking ids made PENDING again, the k-th due after k * `spread_s`, oldest first."""
        ...

    async def purge(self, which: Filter, limit: int, limit_s: float, dry_run: bool = False) -> int:
        """Delete up to `limit` finished events; events in any other status are never deleted."""
        ...

    async def identity(self, limit_s: float) -> str:
        """What tells this outbox from all others: kept for ever, and by copies of the database. Empty: not needed."""
        ...

    def first_time(self, tracking_id: str, consumer_id: str, target: object, outbox_id: str) -> Awaitable[bool]:
        """Inside the caller's transaction: whether this consumer meets this event for the first time.

        A connection to another database is refused, as in `add_in`.
        """
        ...


OnAdded = Callable[[], None]


class EventHints(Protocol):
    """Hints that events were added, on the loop that asked; never the truth."""

    def on_added(self, hint: OnAdded) -> None: ...

    async def listen(self, limit_s: float) -> bool: ...


class Events(SchemaPort, Protocol):
    """One outbox of one database, as a backend offers it; all on one connection of its own, opened when needed."""

    @property
    def port(self) -> EventPort: ...

    @property
    def admin(self) -> EventAdmin: ...

    @property
    def hints(self) -> EventHints: ...

    async def close(self) -> None: ...
