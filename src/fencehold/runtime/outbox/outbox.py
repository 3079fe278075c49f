"""`store.outbox(...)`: events that are handled at least once, each by exactly one worker at a time."""

from __future__ import annotations

import datetime as dt
import math
import secrets
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Unpack, overload

from fencehold.model import names
from fencehold.model.durations import AGE_YEARS_MAX, Duration, seconds
from fencehold.model.errors import ConfigurationError
from fencehold.model.json_types import Json, JsonMapping
from fencehold.model.outbox.new_events import NewEvent, new_event, new_tracking_ids
from fencehold.model.outbox.rules import Status
from fencehold.model.outbox.settings import OutboxSettings, outbox_settings, worker_settings
from fencehold.model.settings import Check
from fencehold.ports.connections import Connection, SyncConnection
from fencehold.ports.events import Claim, ClaimAsk, ClaimKey, EventRow, Events, Failure, Filter, Recovered, Stats
from fencehold.runtime.core.cancel_scope import to_its_end
from fencehold.runtime.handlers.error_text import storable, stored
from fencehold.runtime.handlers.handlers import Handlers
from fencehold.runtime.handlers.types import BatchHandler, EventHandler
from fencehold.runtime.options import WorkerOptions
from fencehold.runtime.outbox.adding import add_surely
from fencehold.runtime.outbox.arguments import EventToAdd, claims_of, done_now, listed, tracking_id_of
from fencehold.runtime.outbox.context import OutboxAccess, OutboxContext
from fencehold.runtime.outbox.identity import OutboxIdentity
from fencehold.runtime.outbox.reaper import Reaper, reap_all
from fencehold.runtime.outbox.worker import Worker, check_hook

LIMIT_S = 10.0
ADMIN_LIMIT_S = 60.0
REDRIVE_PER_MINUTE = 100
PURGE_BATCH = ADD_BATCH = 5000
FIND_MAX = 1000

Progress = Callable[[int], None]


class Outbox:
    """Stores events and hands them to workers: each is handled at least once, by one worker at a time.

    Only one worker has the lease to handle an event. The low-level verbs are for programs that decide themselves when
    to claim and renew; `worker()` is for all others. Every verb is one statement, ended by its limit. If the caller is
    cancelled, `add`, `claim` and `complete` still go on to their end.
    """

    def __init__(self, name: str, settings: OutboxSettings, context: OutboxContext) -> None:
        self.name = name
        self._context = context
        self._access = OutboxAccess(name, settings, context)
        self._identity = OutboxIdentity(name, self._ask_identity, context.shared.outbox_ids)

    @property
    def settings(self) -> OutboxSettings:
        return self._access.settings

    def configure(self, *, lease: Duration, heartbeat_every: Duration | None = None) -> None:
        """Set another lease, from the next claim and heartbeat on, also for workers that are running.

        Their `max_processing` and `shutdown_timeout` follow the lease unless they were set by hand.
        """
        checked = outbox_settings(lease=lease, heartbeat_every=heartbeat_every)
        self._access.settings = replace(
            self.settings, lease_s=checked.lease_s, heartbeat_every_s=checked.heartbeat_every_s,
            reap_every_s=min(self.settings.reap_every_s, checked.reap_every_s),
        )  # fmt: skip
        for worker in [w for w in list(self._context.workers) if w.outbox == self.name]:
            worker._reconfigured()

    async def init(self) -> list[str]:
        """Create or upgrade this outbox's tables; `store.init()` does so for every outbox.

        Returns the steps applied.
        """
        facts = self._context.store.facts
        steps = await self._events_here().schema.init(
            ADMIN_LIMIT_S, lambda what: facts.schema_waiting(outbox=self.name, detail=what)
        )
        self._context.store.first_use.made(self.name)
        return steps

    # --- producers ---

    async def add(
        self,
        event_type: str,
        payload: Json,
        *,
        aggregate_id: str | None = None,
        aggregate_type: str | None = None,
        tracking_id: str | uuid.UUID | None = None,
        not_before: dt.datetime | Duration | None = None,
        priority: int = 0,
        metadata: JsonMapping | None = None,
        tx: Connection | None = None,
    ) -> str:
        """Store an event: it is stored when this returns, or with the caller's transaction `tx`.

        Returns the tracking id. If the store does not answer, the add is tried once more, and then raises Uncertain:
        repeat the call with the same `tracking_id`. An event whose `tracking_id` is stored already is not stored again.
        Events with a higher `priority` are handled sooner; `not_before` is a time or a delay.
        """
        event = self._new(
            self._carried(), event_type, payload, aggregate_id=aggregate_id, aggregate_type=aggregate_type,
            tracking_id=tracking_id, not_before=not_before, priority=priority, metadata=metadata,
        )  # fmt: skip
        await self._store([event], tx)
        return event.tracking_id

    async def add_many(self, events: Iterable[EventToAdd], tx: Connection | None = None) -> list[str]:
        """Store all or none of up to 5,000 events at a time (of all with `tx`). Returns their tracking ids in order.

        Each event is (event_type, payload), or a mapping with the names of `add`'s arguments.
        """
        given, new = listed(events), list[NewEvent]()
        making = self._making(given, new)
        if tx is None and 0 < len(given) <= ADD_BATCH and not any(isinstance(one, Mapping) for one in given):
            await self._store(making, tx)  # one transaction: events may be made while it goes on
            return [event.tracking_id for event in new]
        made = list(making)  # a bad one among them is found before the first is written
        for batch in [made[i : i + ADD_BATCH] for i in range(0, len(made), ADD_BATCH)] if tx is None else [made]:
            if batch:
                await self._store(batch, tx)
        return [event.tracking_id for event in new]

    def add_now(self, events: Iterable[EventToAdd], tx: SyncConnection, outbox_id: str) -> list[str]:
        """Add events like `add_many` for callers without an event loop; `tx` is a sync connection or session."""
        new = list(self._making(listed(events), []))
        done_now(self._context.in_callers_transaction(self.name).in_tx.add(tx, new, outbox_id))
        return [event.tracking_id for event in new]

    def first_time_now(
        self, event: Claim | str | uuid.UUID, consumer_id: str, tx: SyncConnection, outbox_id: str
    ) -> bool:
        """Record an event like `first_time` for callers without an event loop; `tx` is a sync connection or session."""
        in_tx = self._context.in_callers_transaction(self.name).in_tx
        return bool(done_now(in_tx.first_time(tracking_id_of(event), names.consumer_id(consumer_id), tx, outbox_id)))

    async def outbox_id(self) -> str:
        """The id that tells this outbox from one of the same name in another database.

        Only the first call asks the store.
        """
        return await self._identity.get()

    async def _ask_identity(self) -> str:
        return await (await self._here(in_tx=True)).in_tx.identity(LIMIT_S)

    async def first_time(self, event: Claim | str | uuid.UUID, consumer_id: str, *, tx: Connection) -> bool:
        """Record in the caller's `tx` that this consumer has this event.

        True if it was not recorded before, else False. Write the effect of the event in the same transaction: then both
        are stored, or neither is, however often the event is delivered.
        """
        who = tracking_id_of(event), names.consumer_id(consumer_id)
        in_tx = (await self._here(in_tx=True)).in_tx
        return await self._identity.given_to(lambda outbox_id: in_tx.first_time(*who, tx, outbox_id))

    # --- consumers ---

    async def claim(self, limit: int, worker_id: str, *, lease: Duration | None = None) -> list[Claim]:
        """Claim up to `limit` due events and return them, each under a lease that nobody else has."""
        check = Check("Claim")
        check.count(limit, "limit", 1, 10_000)
        check.done("Claim as many as can be started at once.")
        lease_s = self.settings.lease_s if lease is None else seconds(lease, "lease")
        token = f"{names.holder_id(worker_id)}/{secrets.token_hex(6)}"
        ask = ClaimAsk(limit, token, lease_s, in_order=self.settings.in_order)
        claims = (await to_its_end((await self._here()).port.turn([], ask, LIMIT_S))).claims
        if lease is not None:
            for claim in claims:
                claim.lease_s = lease_s
        return claims

    def _lease_s(self, claim: Claim) -> float:
        return claim.lease_s or self.settings.lease_s

    async def renew(self, claims: Claim | Sequence[Claim]) -> list[Claim]:
        """Renew the leases. Returns the claims still held, with their new `locked_until`; stop working on the others.

        Each lease is renewed for the duration given to `claim`, or else for that of the outbox's current lease.
        """
        held = claims_of(claims)
        renewed: dict[ClaimKey, Any] = {}
        for lease_s in {self._lease_s(claim) for claim in held}:
            keys = [claim.key for claim in held if self._lease_s(claim) == lease_s]
            renewed |= await (await self._here()).port.renew(keys, lease_s, LIMIT_S)
        for claim in held:
            claim.locked_until = renewed.get(claim.key, claim.locked_until)
        return [claim for claim in held if claim.key in renewed]

    async def complete(self, claims: Claim | Sequence[Claim]) -> list[Claim]:
        """Complete the events. Returns those completed: none whose lease is over, or that another worker holds."""
        held = claims_of(claims)
        turn = await to_its_end((await self._here()).port.turn(held, None, LIMIT_S))
        accepted = {(key.id, key.token) for key in turn.completed}
        return [claim for claim in held if (claim.id, claim.token) in accepted]

    async def fail(self, claim: Claim, error: BaseException | str, *, retry: bool = True) -> Status | None:
        """Record a failed try of the event. Without `retry` it becomes a dead letter at once.

        Returns FAILED (to be tried again) or DEAD_LETTER; None if the event was no longer ours.
        """
        delay_s = self.settings.backoff.delay_s(claim.attempt, self._context.rng)
        text = stored(error) if isinstance(error, BaseException) else storable(str(error))
        recorded = await (await self._here()).port.fail(
            [Failure(claims_of(claim)[0].key, text, delay_s, retry)], LIMIT_S
        )
        return recorded[0][1] if recorded else None

    async def reap(self) -> list[Recovered]:
        """Recover every event whose lease has lapsed, now, and return what became of each."""
        return await reap_all((await self._here()).port, self._access, LIMIT_S)

    @overload
    def worker(
        self, handler: EventHandler | Mapping[str, EventHandler], *, batch_size: None = None,
        **options: Unpack[WorkerOptions],
    ) -> Worker: ...  # fmt: skip
    @overload
    def worker(
        self, handler: BatchHandler | Mapping[str, BatchHandler], *, batch_size: int, **options: Unpack[WorkerOptions]
    ) -> Worker: ...
    def worker(
        self,
        handler: Any,
        *,
        concurrency: int = 10,
        worker_id: str | None = None,
        poll_every: Duration = 1,
        max_processing: Duration | None = None,
        shutdown_timeout: Duration | None = None,
        batch_size: int | None = None,
        saturated: Callable[[], bool] | None = None,
        reaper: bool = True,
        give_up_after: Duration | None = None,
    ) -> Worker:
        """Return a worker that runs `handler` on the events, not yet running: call its `run`.

        If `handler(event)` returns, the event is done; if it raises, the event is tried again until no tries are left.
        With `batch_size` the handler gets lists of events, and its outcome counts for all of them; an event whose try
        has failed is from then on in its own list. `saturated` returns True while what the handlers call is full: then
        nothing is claimed. `reaper=False` needs a reaper elsewhere. `give_up_after`: `run` raises WorkerStuck once the
        worker's event loop has been blocked for so long, or once all places have been taken for so long by handlers
        that lost their leases and do not return.
        """
        settings = worker_settings(
            self.settings.lease_s, concurrency=concurrency, poll_every=poll_every, max_processing=max_processing,
            shutdown_timeout=shutdown_timeout, batch_size=batch_size, give_up_after=give_up_after,
        )  # fmt: skip
        check_hook(saturated)
        who = names.holder_id(worker_id) if worker_id is not None else names.default_holder_id()
        handlers = Handlers(handler, concurrency, argument="event" if batch_size is None else "events")
        return Worker(self._access, who, handlers, settings, saturated=saturated, with_reaper=reaper)

    def reaper(self, reaper_id: str | None = None) -> Reaper:
        """Return a reaper for deployments whose workers have none.

        Its `run` recovers events until `stop()` is called.
        """
        who = names.holder_id(reaper_id) if reaper_id is not None else names.default_holder_id()
        return Reaper(self._access, who)

    # --- operators ---

    async def stats(self, *, whole: bool = True) -> Stats:
        """Return the counts of the events by status, and the age of the oldest due one, from one read of the table.

        Without `whole` completed events are not counted (0): there may be millions.
        """
        return await (await self._here()).admin.stats(ADMIN_LIMIT_S, whole)

    async def find(self, which: Filter | None = None, limit: int = 100) -> list[EventRow]:
        """Read events as they are now, the newest first."""
        return await (await self._here()).admin.find(which or Filter(), min(limit, FIND_MAX), ADMIN_LIMIT_S)

    async def redrive(
        self,
        event_type: str,
        root_cause: str,
        limit: int = 1000,
        *,
        per_minute: float = REDRIVE_PER_MINUTE,
        dry_run: bool = False,
    ) -> list[str]:
        """Make dead letters of this type PENDING again, at most `per_minute` a minute, with their tries reset.

        Returns their tracking ids. `root_cause` states what was wrong and is fixed; it is stored with each event.
        """
        if not str(root_cause).strip():
            hint = "Say what was wrong and has been mended: a redrive without that only fails again."
            raise ConfigurationError("A redrive needs its root cause.", hint=hint, code="no_root_cause")
        check = Check("Redrive")
        check.that(0 < per_minute < math.inf, f"per_minute is {per_minute!r}; it must be above zero, and finite")
        check.count(limit, "limit", 1, 2**31 - 1)
        check.done("100 a minute is the default.")
        which = Filter((Status.DEAD_LETTER,), (event_type,))
        return await self._redrive(which, root_cause, limit, per_minute, dry_run)

    async def retry(self, tracking_ids: Sequence[str], root_cause: str = "", *, dry_run: bool = False) -> list[str]:
        """Make these failed events and dead letters PENDING now. Returns the tracking ids of those it changed."""
        which = Filter((Status.DEAD_LETTER, Status.FAILED), (), tuple(map(tracking_id_of, tracking_ids)))
        return await self._redrive(which, root_cause, len(tracking_ids), 0.0, dry_run)

    async def purge(
        self,
        older_than: Duration,
        *,
        statuses: Sequence[Status] = (Status.COMPLETED,),
        dry_run: bool = False,
        on_progress: Progress | None = None,
    ) -> int:
        """Delete finished events, in batches that hold no lock for long. Returns how many events were deleted.

        Dead letters are deleted only if `statuses` names them.
        """
        if set(statuses) - {Status.COMPLETED, Status.DEAD_LETTER} or not statuses:
            hint = "Only COMPLETED and DEAD_LETTER events are finished."
            raise ConfigurationError("Unfinished events are never purged.", hint=hint, code="bad_status")
        which = Filter(tuple(map(Status, statuses)), (), (), seconds(older_than, "older_than", AGE_YEARS_MAX))
        if dry_run:
            return await (await self._here()).admin.purge(which, 2**31 - 1, ADMIN_LIMIT_S, dry_run=True)
        total = 0
        while batch := await (await self._here()).admin.purge(which, PURGE_BATCH, ADMIN_LIMIT_S):
            total += batch
            if on_progress:
                on_progress(total)
        self._access.facts.events_purged(count=total)
        return total

    async def close(self) -> None:
        """Close the connections, unless another Outbox of the same name uses them. `store.close()` closes all."""
        await self._context.shared.leave(self)

    # --- within ---

    async def _redrive(self, which: Filter, root_cause: str, limit: int, per_minute: float, dry_run: bool) -> list[str]:
        spread_s = 60.0 / per_minute if per_minute > 0 else 0.0
        found = await (await self._here()).admin.redrive(which, root_cause, limit, spread_s, ADMIN_LIMIT_S, dry_run)
        if not dry_run:
            kinds = ",".join(which.event_types)
            self._access.facts.events_redriven(event_type=kinds, count=len(found), root_cause=root_cause)
        return found

    def _carried(self) -> dict[str, Any]:
        """Return the caller's trace context, to be kept in an event's metadata; empty if there is none."""
        headers = self._context.store.traces.carry()
        return {"trace": dict(headers)} if headers else {}

    def _new(self, carried: dict[str, Any], event_type: Any, payload: Any, **rest: Any) -> NewEvent:
        if carried:
            rest["metadata"] = {**(rest.get("metadata") or {}), **carried}
        return new_event(self.settings, event_type, payload, **rest)

    def _making(self, given: list[Any], made: list[NewEvent]) -> Iterator[NewEvent]:
        """Check and serialise each event when it is asked for; append the result to `made`, and yield it."""
        carried = self._carried()
        for event, fresh_id in zip(given, new_tracking_ids(len(given)), strict=True):
            new = self._new_of(event, carried, fresh_id)
            made.append(new)
            yield new

    def _new_of(self, event: Any, carried: dict[str, Any], fresh_id: str) -> NewEvent:
        try:
            if isinstance(event, Mapping):
                return self._new(carried, **event, fresh_id=fresh_id)
            event_type, payload = [] if isinstance(event, str) else event
        except (TypeError, ValueError) as error:
            if isinstance(error, ConfigurationError):
                raise
            hint = 'Give ("order.created", {"id": 7}), or {"event_type": ..., "payload": ..., ...}.'
            raise ConfigurationError(f"Not an event: {event!r:.80}.", hint=hint, code="bad_event") from None
        return self._new(carried, event_type, payload, fresh_id=fresh_id)

    async def _store(self, events: Iterable[NewEvent], tx: Connection | None) -> None:
        events_here = await self._here(in_tx=tx is not None)
        if tx is None:
            await to_its_end(add_surely(events_here.port, events, LIMIT_S))
        else:
            new = list(events)
            await self._identity.given_to(lambda outbox_id: events_here.in_tx.add(tx, new, outbox_id))

    async def _here(self, *, in_tx: bool = False) -> Events:
        """Return the backend's part for this outbox; all Outbox objects of this name on this loop share its connection.

        If `store.init()` was called before the outbox was declared, this makes its tables first.
        """
        await self._context.store.first_use.outbox(self.name, in_tx=in_tx)
        return self._events_here()

    def _events_here(self) -> Events:
        self._context.store.check_open()
        return self._context.shared.here(self)
