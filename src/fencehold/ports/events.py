"""Events of one outbox. The rules are in model/outbox/rules.py; a verb is one statement (or transaction), one limit.

EventPort is for producers, workers and the reaper, who call it all the time; EventsInTx for what is written in a
caller's own transaction; EventAdmin for operators, now and then.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Awaitable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol

from fencehold.model.json_types import J
from fencehold.model.outbox.new_events import NewEvent
from fencehold.model.outbox.rules import Status
from fencehold.ports.schema import SchemaPort
from fencehold.ports.wakeup import WakeupPort


@dataclass(slots=True, eq=False)
class Claim(Generic[J]):
    """One event held under a lease until `locked_until` (store time), by this token alone.

    `Event[Order]` gives a type checker the type of the payload, such as a TypedDict; it is not checked at run time.
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
    lease_s: float = 0.0  # the length of its lease; 0: the lease that is set for its outbox
    recovered: bool = False  # a worker had it before, and neither finished it nor reported a failure
    is_suspect: bool = False  # recovered twice in a row: it may be what killed its workers

    @property
    def payload(self) -> J:
        """The payload as it was added; it is decoded when it is read."""
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
    """Identifies one claim on one event. A renewal, a completion and a failure compare it with the row."""

    id: int
    token: str
    tracking_id: str = field(default="", compare=False)


class Key(Protocol):
    """A ClaimKey, or the Claim itself: either identifies one claim on one event."""

    @property
    def id(self) -> int: ...
    @property
    def token(self) -> str: ...
    @property
    def tracking_id(self) -> str: ...


@dataclass(frozen=True, slots=True)
class ClaimAsk:
    """Asks for up to `limit` due events of these types (None: all), most urgent first, under a token for `lease_s`.

    `in_order`: of each aggregate only the oldest unfinished event, and none while another event of it is held.
    `may_miss`: an event that became visible late (after a long transaction, say) may be left to a later claim, for up
    to some seconds. For workers, which claim again and again; a backend that finds all at no cost ignores it.
    `suspects_max`: at most so many suspects (None: all); a suspect was recovered at least twice in a row.
    """

    limit: int
    token: str
    lease_s: float
    event_types: tuple[str, ...] | None = None
    in_order: bool = False
    may_miss: bool = False
    suspects_max: int | None = None


@dataclass(frozen=True, slots=True)
class Turn:
    """What one round trip did: the keys that were completed, and the events claimed."""

    completed: Sequence[Any]
    claims: list[Claim]


@dataclass(frozen=True, slots=True)
class Failure:
    """One failed try. `retry=False` makes the event a dead letter at once, even if tries are left."""

    key: ClaimKey
    error: str
    delay_s: float
    retry: bool = True


@dataclass(frozen=True, slots=True)
class Recovered:
    """One event whose lease had lapsed: `status` is PENDING again, or DEAD_LETTER when no tries are left."""

    id: int
    tracking_id: str
    event_type: str
    status: Status
    retry_count: int
    stale_s: float
    token: str


@dataclass(frozen=True, slots=True)
class Stats:
    """The counts of the table at one moment.

    `oldest_pending_age_s` counts from when the oldest claimable event became due.
    """

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
    """One event for operators, at one moment. `waits_s`: how long until it is due; `held_s`: until its lease ends."""

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
    """Which events an operator selects; an empty field selects all."""

    statuses: tuple[Status, ...] = ()
    event_types: tuple[str, ...] = ()
    tracking_ids: tuple[str, ...] = ()
    older_than_s: float | None = None


class EventPort(Protocol):
    """An answer leaves out refused keys. Without an answer a verb raises Unavailable (not executed) or Uncertain."""

    async def add(self, events: Iterable[NewEvent], limit_s: float) -> list[str]:
        """Store the events and return their tracking ids. An event whose id is known is not changed and not returned.

        Sends one hint for all of them. All or none: if making one of the events raises, nothing is stored.
        """
        ...

    async def turn(self, completed: Sequence[Key], ask: ClaimAsk | None, limit_s: float) -> Turn:
        """Complete these and claim the next, in one round trip where the database can."""
        ...

    async def renew(self, keys: Sequence[ClaimKey], lease_s: float, limit_s: float) -> dict[ClaimKey, dt.datetime]:
        """Return until when each key is held, if it still is. A row that another session kept locked is left out."""
        ...

    async def fail(self, failures: Sequence[Failure], limit_s: float) -> list[tuple[ClaimKey, Status]]: ...

    async def release(self, keys: Sequence[ClaimKey], limit_s: float) -> list[ClaimKey]:
        """Give back events that were not begun, or that a stopping worker called off: due at once, no try counted."""
        ...

    async def reap(self, limit: int, limit_s: float) -> list[Recovered]:
        """Recover up to `limit` lapsed events, the longest lapsed first, and record this run."""
        ...


class EventAdmin(Protocol):
    """The verbs of an operator. With `dry_run` a verb returns the same and changes nothing."""

    async def stats(self, limit_s: float, whole: bool = True) -> Stats:
        """Count the events. Without `whole` the completed ones are not counted (0): there may be millions."""
        ...

    async def find(self, which: Filter, limit: int, limit_s: float) -> list[EventRow]:
        """Return up to `limit` events, the newest first."""
        ...

    async def redrive(
        self, which: Filter, root_cause: str, limit: int, spread_s: float, limit_s: float, dry_run: bool = False
    ) -> list[str]:
        """Make up to `limit` events PENDING again, oldest first, the k-th due after k * `spread_s`.

        Returns their tracking ids.
        """
        ...

    async def purge(self, which: Filter, limit: int, limit_s: float, dry_run: bool = False) -> int:
        """Delete up to `limit` finished events; events in any other status are never deleted."""
        ...


class EventsInTx(Protocol):
    """What is written inside the caller's own transaction, on the caller's connection or session.

    `outbox_id` is the result of `identity`. Raises ConfigurationError (wrong_store) if the connection leads to another
    database.
    """

    def add(self, target: object, events: Sequence[NewEvent], outbox_id: str) -> Awaitable[list[str]]:
        """Store the events and return the tracking ids of those that were not known yet, as EventPort.add does."""
        ...

    def first_time(self, tracking_id: str, consumer_id: str, target: object, outbox_id: str) -> Awaitable[bool]:
        """Record that this consumer has this event; False if that was known already."""
        ...

    async def identity(self, limit_s: float) -> str:
        """Return what identifies this outbox: it never changes, and copies of the database keep it.

        Asked on the outbox's own connection. Empty: this database needs none.
        """
        ...


class Events(Protocol):
    """One outbox of one database, as a backend offers it; all on one connection of its own, opened when needed."""

    @property
    def schema(self) -> SchemaPort: ...

    @property
    def port(self) -> EventPort: ...

    @property
    def in_tx(self) -> EventsInTx: ...

    @property
    def admin(self) -> EventAdmin: ...

    @property
    def hints(self) -> WakeupPort:
        """Hints that events were added, called on the event loop that asked."""
        ...

    async def close(self) -> None: ...
