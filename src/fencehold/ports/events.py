"""The verbs of one outbox, and what they take and return. The rules are in model/outbox/rules.py.

A verb is one statement (or one transaction) and has one time limit. EventPort is for producers, workers and the reaper,
who call it all the time; EventsInTx is for writes in a caller's own transaction; EventAdmin is for operators.
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
    """One event with the lease of the worker that claimed it: until `locked_until` (store time), for this token alone.

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
        """Return the payload as it was added. It is decoded each time it is read."""
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
    """The identity of one claim on one event. A renewal, a completion and a failure compare it with the row."""

    id: int
    token: str
    tracking_id: str = field(default="", compare=False)


class Key(Protocol):
    """The identity of one claim on one event: a ClaimKey, or the Claim itself, which has the same two fields."""

    @property
    def id(self) -> int: ...
    @property
    def token(self) -> str: ...
    @property
    def tracking_id(self) -> str: ...


@dataclass(frozen=True, slots=True)
class ClaimAsk:
    """A request for up to `limit` due events of these types (None: all types), the most urgent first.

    The events are leased for `lease_s` under `token`. `in_order`: claim of each aggregate only the oldest unfinished
    event, and none while another event of the aggregate is held. `may_miss`: an event that became visible late (after a
    long transaction, say) may be left to a later claim, for some seconds. It is for workers, which claim again and
    again; a backend that finds all events at no cost ignores it. `suspects_max`: claim at most so many suspects (None:
    any number); a suspect is an event that was recovered from a dead worker at least twice in a row.
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
    """What one call of `EventPort.turn` did: the keys of the events it completed, and the events it claimed."""

    completed: Sequence[Any]
    claims: list[Claim]


@dataclass(frozen=True, slots=True)
class Failure:
    """The report of one failed try. `retry=False` makes the event a dead letter at once, even if tries are left."""

    key: ClaimKey
    error: str
    delay_s: float
    retry: bool = True


@dataclass(frozen=True, slots=True)
class Recovered:
    """One event whose lease had lapsed and that the reaper took from its worker.

    `status` is PENDING again, or DEAD_LETTER if no tries are left.
    """

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
    """One event as operators see it. `waits_s`: seconds until it is due; `held_s`: seconds until its lease ends."""

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
    """Which events an operator selects: those that match every field. A field that is empty or None matches all."""

    statuses: tuple[Status, ...] = ()
    event_types: tuple[str, ...] = ()
    tracking_ids: tuple[str, ...] = ()
    older_than_s: float | None = None


class EventPort(Protocol):
    """The verbs of producers, workers and the reaper.

    What a verb returns leaves out the keys that the store refused: their claim is over. If the store does not answer, a
    verb raises Unavailable (not executed) or Uncertain (perhaps executed).
    """

    async def add(self, events: Iterable[NewEvent], limit_s: float) -> list[str]:
        """Store the events and return their tracking ids.

        An event whose id is known already is not changed, and its id is not returned. Listeners get one notification
        for all of the events. All are stored or none: if the iterable raises while it is read, nothing is stored.
        """
        ...

    async def turn(self, completed: Sequence[Key], ask: ClaimAsk | None, limit_s: float) -> Turn:
        """Complete the events of these keys and claim new ones, in one round trip where the database can.

        `ask` None: no claim.
        """
        ...

    async def renew(self, keys: Sequence[ClaimKey], lease_s: float, limit_s: float) -> dict[ClaimKey, dt.datetime]:
        """Renew the leases and return until when each key is held.

        Left out are keys whose claim is over, and keys whose row another session kept locked.
        """
        ...

    async def fail(self, failures: Sequence[Failure], limit_s: float) -> list[tuple[ClaimKey, Status]]: ...

    async def release(self, keys: Sequence[ClaimKey], limit_s: float) -> list[ClaimKey]:
        """Give events back: they are due at once and no try is counted. Return the keys that were given back.

        For events that were not begun, or whose handler a stopping worker cancelled.
        """
        ...

    async def reap(self, limit: int, limit_s: float) -> list[Recovered]:
        """Recover up to `limit` events whose lease has lapsed, the longest lapsed first, and return them.

        Also records in the store that the reaper ran.
        """
        ...


class EventAdmin(Protocol):
    """The verbs of an operator. With `dry_run` a verb returns the same result and changes nothing."""

    async def stats(self, limit_s: float, whole: bool = True) -> Stats:
        """Return the counts of the events.

        With `whole` False the completed events are not counted (0): there may be millions.
        """
        ...

    async def find(self, which: Filter, limit: int, limit_s: float) -> list[EventRow]:
        """Return up to `limit` events, the newest first."""
        ...

    async def redrive(
        self, which: Filter, root_cause: str, limit: int, spread_s: float, limit_s: float, dry_run: bool = False
    ) -> list[str]:
        """Make up to `limit` selected events PENDING again, the oldest first, and return their tracking ids.

        The k-th event is due after k * `spread_s` seconds, so that the events do not all run at once. `root_cause` is
        stored with each event.
        """
        ...

    async def purge(self, which: Filter, limit: int, limit_s: float, dry_run: bool = False) -> int:
        """Delete up to `limit` finished events and return how many. An event that is not finished is never deleted."""
        ...


class EventsInTx(Protocol):
    """Verbs that write inside the caller's own transaction, on the caller's connection or session (`target`).

    `outbox_id` is the result of `identity`. A verb raises ConfigurationError (wrong_store) if the connection leads to
    another database.
    """

    def add(self, target: object, events: Sequence[NewEvent], outbox_id: str) -> Awaitable[list[str]]:
        """Store the events in the caller's transaction.

        Return the tracking ids of those that were not known already.
        """
        ...

    def first_time(self, tracking_id: str, consumer_id: str, target: object, outbox_id: str) -> Awaitable[bool]:
        """Record that this consumer has handled this event. Return True, or False if that was recorded before."""
        ...

    async def identity(self, limit_s: float) -> str:
        """Return the text that identifies this outbox, read on the outbox's own connection.

        The text never changes, and copies of the database keep it. It is empty for a database that needs none.
        """
        ...


class Events(Protocol):
    """One outbox of one database. All its verbs use one connection of its own, opened when first needed."""

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
        """Return the port for hints that events were added. A hint is called on the event loop that registered it."""
        ...

    async def close(self) -> None: ...
