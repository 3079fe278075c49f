"""Judges the outbox of a simulated run, by records of its own: who holds which event until when, after how many tries.

Safety, at every instant: an event whose claim is valid for its worker is held in the store under that claim's token, so
that no two workers hold it at once. At every change in the store: a result is recorded only under the live claim, an
event is completed once and only after its handler returned, tries are counted, no token comes twice, and the reaper
takes only what has lapsed.

Liveness: what has lapsed is recovered in time by an undisturbed reaper; a handler whose claim is lost ends, so that its
place among the worker's handlers is free; nothing is renewed for longer than a handler may take. The schedule judges
the other promises about time, once all faults have ended.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from fencehold.backends.memory.outbox.shelf import EventShelf, Kept
from fencehold.model.outbox.new_events import NewEvent
from fencehold.model.outbox.rules import Request, Status, Verb
from fencehold.model.outbox.settings import OutboxSettings
from fencehold.ports.events import ClaimKey
from fencehold.runtime.outbox.context import ClaimedEvent
from fencehold.runtime.outbox.handler_runs import LOST_GRACE_S
from fencehold.runtime.outbox.reaper import AGAIN_S
from fencehold.runtime.outbox.worker import Worker
from fencehold.testing.simulation.loop import SimulationLoop
from fencehold.testing.simulation.network import STUTTER_S_MAX
from fencehold.testing.simulation.process import StoreProcess
from fencehold.testing.simulation.referee import LONG_AGO, ROUNDING_S, SLACK_S, SMALL_DRIFT, Referee, Trace


class WorkerNode(StoreProcess):
    """A simulated process with workers: the attributes that the referee reads."""

    reaps_since_s: float | None
    concurrency: int
    workers: Sequence[Worker]


@dataclass(eq=False)
class Record:
    """The referee's record of one event: the claim with `token` holds the event until `until`.

    Token None: nobody holds it.
    """

    id: int
    max_retries: int
    aggregate_id: str | None
    tries: int = 0
    token: str | None = None
    until: dt.datetime = LONG_AGO
    until_s: float = 0.0
    claimed_s: dict[str, float] = field(default_factory=dict)  # by token: how long the worker's keeper had run by then
    is_final: bool = False


class OutboxReferee(Referee):
    def __init__(self, loop: SimulationLoop, trace: Trace, settings: OutboxSettings) -> None:
        super().__init__(loop, trace)
        self.nodes: dict[str, WorkerNode] = {}
        self.records: dict[int, Record] = {}
        self.returned: set[tuple[int, str]] = set()  # handlers, by event and token
        self.refused: set[ClaimKey] = set()  # renewals, once the refusal has arrived
        self._taken: set[ClaimKey] = set()  # claims that the store ended early
        self._settings = settings
        self._call_s = settings.call_limit_s + STUTTER_S_MAX
        self._held: dict[int, Record] = {}
        self._leaving: dict[ClaimedEvent, tuple[float, float]] = {}

    # --- what the store executed ---

    def added(self, row: Kept) -> None:
        self.records[row.id] = Record(row.id, row.stored.max_retries, row.new.aggregate_id)

    def executed(self, row: Kept, verb: Verb, request: Request) -> None:
        record = self.records[row.id]
        self.counts[f"{verb.value}s"] += 1
        if self.trace.on:
            self.trace.note("store", f"event {row.id}: {verb.value} {request.token} -> {row.stored.status}")
        match verb:
            case Verb.CLAIM:
                self._claimed(record, request)
            case Verb.RENEW:
                self._must_hold(record, verb, request)
                self._hold(record, request)
            case Verb.REAP if request.now < record.until:
                self.fail(f"the reaper took event {row.id}, whose lease was live")
            case Verb.COMPLETE | Verb.FAIL | Verb.RELEASE:
                self._must_hold(record, verb, request)
        if verb in {Verb.FAIL, Verb.REAP}:
            record.tries += 1
        elif verb is Verb.REDRIVE:
            record.tries = 0
        is_spent = record.tries >= record.max_retries or (verb is Verb.FAIL and not request.retry)
        record.is_final = verb is Verb.COMPLETE or (verb in {Verb.FAIL, Verb.REAP} and is_spent)
        if verb not in {Verb.CLAIM, Verb.RENEW}:
            self._held.pop(row.id, None)
            record.token, record.until = None, LONG_AGO
        self._judge_row(row, record)

    def _claimed(self, record: Record, request: Request) -> None:
        self.must(
            request.now >= record.until,
            f"event {record.id} was claimed under {request.token} while {record.token} held it",
        )
        self.must(
            request.token not in record.claimed_s,
            f"event {record.id} was claimed twice under the token {request.token}",
        )
        if self._settings.in_order and record.aggregate_id is not None:
            same = (one for one in self.records.values() if one.aggregate_id == record.aggregate_id)
            if before := [one.id for one in same if not one.is_final and (one.id < record.id or one.token is not None)]:
                self.fail(f"event {record.id} was claimed before {before}, which come before it in their aggregate")
        record.claimed_s[request.token] = self.nodes[request.token.partition("/")[0]].keeper.running_s()
        self._hold(record, request)

    def _hold(self, record: Record, request: Request) -> None:
        record.token = request.token
        record.until = request.now + dt.timedelta(seconds=request.lease_s)
        record.until_s = self.loop.time() + request.lease_s
        self._held[record.id] = record

    def _must_hold(self, record: Record, verb: Verb, request: Request) -> None:
        late = "whose lease was over" if request.token == record.token else f"while {record.token} held it"
        self.must(
            request.token == record.token and request.now < record.until,
            f"a {verb.value} of event {record.id} under {request.token} was accepted, {late}",
        )
        has_returned = (record.id, request.token) in self.returned
        self.must(
            verb is not (Verb.RELEASE if has_returned else Verb.COMPLETE),
            f"a {verb.value} of event {record.id}, whose handler had {'' if has_returned else 'not '}returned",
        )

    def _judge_row(self, row: Kept, record: Record) -> None:
        stored = row.stored
        self.must(
            stored.retry_count == record.tries,
            f"event {row.id} has had {record.tries} tries, but its row counts {stored.retry_count}",
        )
        self.must(
            (stored.status in {Status.COMPLETED, Status.DEAD_LETTER}) is record.is_final,
            f"event {row.id} is {stored.status} after {record.tries} of {record.max_retries} tries",
        )

    def lapsed_early(self, row: Kept) -> None:
        """Record that the store ended the claim of this event early.

        Until the worker hears of that, it may trust the claim.
        """
        record = self.records[row.id]
        self.trace.note("store", f"event {row.id}: lapses early")
        self._taken.add(ClaimKey(row.id, record.token or ""))
        record.until, record.until_s = row.stored.locked_until or LONG_AGO, self.loop.time()

    # --- what a process did ---

    def renewing(self, node: WorkerNode, keys: Sequence[ClaimKey], max_processing_s: float) -> None:
        """Judge a renewal when it is sent. No event may be renewed for longer than a handler may take.

        Called on the keeper's thread.
        """
        limit_s = (max_processing_s + self._call_s) * SMALL_DRIFT + SLACK_S  # a second try may be so late
        for key in keys:
            age_s = node.keeper.running_s() - self.records[key.id].claimed_s[key.token]
            self.must(age_s <= limit_s, f"{node.name} renews event {key.id}, which it claimed {age_s:.2f} s ago")

    # --- whenever something happened and all of it is done, before time moves on ---

    def judge(self, now_s: float) -> None:
        hands: dict[int, str] = {}
        for node in self.nodes.values():
            for worker in node.workers:
                if worker._context.claimed_events:
                    self._judge_hand(node, worker, hands, now_s)
        for record in self._held.values():
            if record.until_s < now_s:
                self._judge_lapsed(record, now_s)

    def _judge_hand(self, node: WorkerNode, worker: Worker, hands: dict[int, str], now_s: float) -> None:
        in_hand = worker._context.claimed_events
        if len(in_hand) > node.concurrency:
            self.fail(f"{node.name} has {len(in_hand)} events in {node.concurrency} places")
        suspects = 0
        for claimed in in_hand.values():
            if claimed.is_valid:
                self._judge_valid(node, claimed, hands, now_s)
                suspects += claimed.claim.is_suspect
            else:
                self._judge_leaving(node, worker, claimed)
        if suspects > 1:
            self.fail(f"{node.name} handles two suspects at once")

    def _judge_valid(self, node: WorkerNode, claimed: ClaimedEvent, hands: dict[int, str], now_s: float) -> None:
        claim, key = claimed.claim, claimed.key
        if claimed in self._leaving:
            self.fail(f"{node.name}'s claim on event {claim.id} was over and is valid again")
        if key in self.refused:
            self.fail(f"{node.name}'s claim on event {claim.id} is still valid after its renewal was refused")
        if key in self._taken:
            return
        if claim.id in hands:
            self.fail(f"event {claim.id} is in the hands of {hands[claim.id]} and {node.name} at once")
        hands[claim.id] = node.name
        # The store's claim must last as long as this one: a process that is paused now cannot learn of its end.
        record, until_s = self.records[claim.id], now_s + claimed.remaining_s / node.clock.rate
        if record.token != claim.token or until_s > record.until_s + ROUNDING_S:
            self.fail(
                f"{node.name}'s claim {claim.token} on event {claim.id} is valid until {until_s:.3f}, but the store's "
                f"is {record.token} until {record.until_s:.3f}"
            )

    def _judge_leaving(self, node: WorkerNode, worker: Worker, claimed: ClaimedEvent) -> None:
        user_s, keeper_s = node.user.running_s(), node.keeper.running_s()
        since_s = self._leaving.setdefault(claimed, (user_s, keeper_s))
        if claimed.task is None or worker.stopped.is_set():  # the handler was not begun, and never will be
            return
        # When the claim ends, the keeper may be renewing others; and the handler may clean up after its cancel.
        limit_s = 2 * self._call_s + LOST_GRACE_S + SLACK_S
        if min(user_s - since_s[0], keeper_s - since_s[1]) > limit_s:
            self.fail(f"{node.name}'s handler of event {claimed.claim.id} keeps its place, and its claim is over")

    def _judge_lapsed(self, record: Record, now_s: float) -> None:
        """Fail if a process that has the reaper's lease did not recover this event in time, after its claim had lapsed.

        Whether any process has the reaper's lease is judged by the schedule, once all faults have ended.
        """
        reaps = [node for node in self.nodes.values() if node.reaps_since_s is not None]
        if not reaps:
            return
        since_s = max(record.until_s, *(max(node.reaps_since_s or 0.0, node.disturbed_s) for node in reaps))
        limit_s = max(self._settings.reap_every_s, AGAIN_S) * SMALL_DRIFT + 2 * self._call_s + SLACK_S
        if now_s > since_s + limit_s:
            self.fail(f"event {record.id} has lapsed {now_s - record.until_s:.2f} s ago and is not recovered")


class JudgedEvents(EventShelf):
    """The events of the memory backend; reports every added event and every change to the referee."""

    def __init__(self, now: Callable[[], dt.datetime], referee: OutboxReferee) -> None:
        super().__init__(now)
        self._referee = referee

    def add(self, event: NewEvent) -> bool:
        is_new = super().add(event)
        if is_new:
            self._referee.added(self.by_tracking_id[event.tracking_id])
        return is_new

    def apply(self, event_id: int, verb: Verb, request: Request) -> Kept | None:
        row = super().apply(event_id, verb, request)
        if row is not None:
            self._referee.executed(row, verb, request)
        return row

    def lapse_early(self) -> None:
        """End the lease of one event that is claimed, although its worker did nothing wrong, and tell the referee."""
        held = [row for row in self.unfinished.values() if row.stored.status is Status.PROCESSING]
        for row in held[:1]:
            row.stored = replace(row.stored, locked_until=self.now())
            self._referee.lapsed_early(row)
