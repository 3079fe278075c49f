"""Judges the items of a simulated run, by records of its own: who holds which item, under which token and until when.

Safety, at every instant: an item whose lease is valid for its process is held in the store by that holder; no two
leases on one item are valid at once, and no lease becomes valid again. At every change in the store: an item is written
only under its live lease and token, tokens only rise, and nobody takes or breaks what another holds.

Liveness: a body (the user's code inside `async with item`) ends soon after its lease, and its block raises; a lease is
broken when its block has ended; a process with a blocked event loop does not keep its items. The schedule judges the
other promises about time, once all faults have ended.
"""

from __future__ import annotations

import datetime as dt
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from fencehold.backends.memory.items import ItemShelf, Place
from fencehold.model.items.rules import ItemKey, Request, Row, Verb, decide, row_state
from fencehold.model.items.settings import ItemSettings
from fencehold.runtime.items.context import BREAK_LIMIT_S
from fencehold.runtime.items.keeper import BROKEN, DONE, ItemLease
from fencehold.testing.simulation.loop import SimulationLoop
from fencehold.testing.simulation.network import STUTTER_S_MAX
from fencehold.testing.simulation.process import Process, StoreProcess
from fencehold.testing.simulation.referee import (
    BODY_STOP_S_MAX,
    LONG_AGO,
    ROUNDING_S,
    SLACK_S,
    SMALL_DRIFT,
    Referee,
    Trace,
)

REMEMBERED = 20  # leases that are over


class Holder(StoreProcess):
    """A simulated process that holds items: the attributes that the referee reads."""

    inside: Collection[ItemLease]
    deleting: Collection[ItemKey]

    @abstractmethod
    def held(self) -> Iterable[ItemLease]: ...


@dataclass(eq=False)
class Record:
    """The referee's record of one item: its last lease has `token`, and belongs to `holder_id` until `until`."""

    token: int = 0
    holder_id: str = ""
    until: dt.datetime = LONG_AGO
    until_s: float = 0.0


class ItemReferee(Referee):
    def __init__(self, loop: SimulationLoop, trace: Trace, settings: ItemSettings) -> None:
        super().__init__(loop, trace)
        self.nodes: dict[str, Holder] = {}
        self.records: dict[str, Record] = {}
        self.refused: set[ItemKey] = set()  # renewals, once the refusal has arrived
        self._taken: dict[tuple[str, str], int] = {}  # by item and holder: the last token that the store ended early
        self._granted_s: dict[ItemKey, float] = {}  # how long the holder's keeper had run by then
        self._settings = settings
        self._call_s = settings.call_limit_s + STUTTER_S_MAX
        self._over: deque[ItemLease] = deque(maxlen=REMEMBERED)
        self._believed: dict[ItemLease, None] = {}
        self._leaving: dict[ItemLease, tuple[float, float]] = {}

    # --- what the store executed ---

    def executed(self, item_id: str, verb: Verb, request: Request) -> None:
        record = self.records.setdefault(item_id, Record())
        self.counts[f"{verb.value}s"] += 1
        if self.trace.on:
            self.trace.note("store", f"item {item_id}: {verb.value} of {request.holder_id} {request.token or ''}")
        match verb:
            case Verb.ACQUIRE | Verb.NEXT:
                self._granted(item_id, record, verb, request)
            case Verb.RENEW:
                self._must_hold(item_id, record, verb, request)
                self._hold(record, request)
            case Verb.SAVE | Verb.DELETE:
                self._must_hold(item_id, record, verb, request)
            case Verb.PUT | Verb.BREAK if request.now < record.until and request.holder_id != record.holder_id:
                self.fail(f"a {verb.value} of item {item_id} by {request.holder_id}: {record.holder_id} holds it")
        if verb in {Verb.BREAK, Verb.DELETE}:
            record.until, record.until_s = LONG_AGO, 0.0

    def _granted(self, item_id: str, record: Record, verb: Verb, request: Request) -> None:
        self.must(
            request.now >= record.until or (verb is not Verb.NEXT and request.holder_id == record.holder_id),
            f"item {item_id} was leased to {request.holder_id} while {record.holder_id} held it",
        )
        self.must(
            request.next_token > record.token,
            f"item {item_id} was leased under token {request.next_token} after {record.token}",
        )
        record.holder_id, record.token = request.holder_id, request.next_token
        self.trace.note("store", f"item {item_id}: leased to {record.holder_id} under {record.token}")
        key = ItemKey(item_id, record.holder_id, record.token)
        self._granted_s[key] = self.nodes[record.holder_id].keeper.running_s()
        self._hold(record, request)

    def _hold(self, record: Record, request: Request) -> None:
        record.until = request.now + dt.timedelta(seconds=request.lease_s)
        record.until_s = self.loop.time() + request.lease_s

    def _must_hold(self, item_id: str, record: Record, verb: Verb, request: Request) -> None:
        self.must(
            (request.holder_id, request.token) == (record.holder_id, record.token) and request.now < record.until,
            f"a {verb.value} of item {item_id} by {request.holder_id} under {request.token} was accepted: "
            f"{record.holder_id} has it under {record.token} until {record.until_s:.3f}",
        )

    def lapsed_early(self, item_id: str) -> None:
        """Record that the store ended the lease of this item early.

        Until the holder hears of that, it may trust the lease.
        """
        record = self.records[item_id]
        self.trace.note("store", f"item {item_id}: lapses early")
        self._taken[item_id, record.holder_id] = record.token
        record.until, record.until_s = LONG_AGO, 0.0

    # --- what a process did ---

    def acquiring(self, node: Holder, item_id: str) -> None:
        """Judge an acquire when it is sent.

        A process must not acquire an item that a running body of its own already holds.
        """
        if any(lease.key.id == item_id and lease.is_valid for lease in node.inside):
            self.fail(f"{node.name} acquires item {item_id} from under its own body")

    def renewing(self, node: Holder, keys: Sequence[ItemKey]) -> None:
        """Judge a renewal when it is sent.

        A process must not renew long after its event loop was blocked, nor for longer than a handler may take.
        """
        settings, ran_s = self._settings, node.keeper.running_s()
        rounds_s = 2 * (settings.heartbeat_every_s + self._call_s)
        silent_s = 0.0 if node.blocked_at_s is None else ran_s - node.blocked_at_s
        self.must(
            silent_s <= (settings.stall_limit_s + rounds_s) * SMALL_DRIFT,
            f"{node.name} renews although its event loop has been blocked for {silent_s:.2f} s",
        )
        for lease in node.held():
            age_s = ran_s - self._granted_s[lease.key]
            self.must(
                lease.key not in keys or age_s <= (lease.max_s + rounds_s) * SMALL_DRIFT,
                f"{node.name} renews item {lease.key.id}, whose handler has run for {age_s:.2f} s",
            )

    def left(self, node: Process, lease: ItemLease, since_s: float, ran_s: float) -> None:
        """Judge the end of an `async with item` block: its lease is broken, and leaving did not take too long.

        The body ended at `since_s`; the user's thread had run for `ran_s` seconds by then.
        """
        record = self.records[lease.key.id]
        is_held = record.token == lease.key.token and self.loop.time() < record.until_s
        # A lease that the user broke is not broken again: if that failed, the user got the error.
        self.must(
            not is_held or lease.ended_because == BROKEN or node.disturbed_s >= since_s,
            f"{node.name} has left item {lease.key.id}, and its lease is not broken",
        )
        took_s = node.user.running_s() - ran_s
        self.must(
            took_s <= BREAK_LIMIT_S + STUTTER_S_MAX + SLACK_S,
            f"{node.name} needed {took_s:.2f} s to leave item {lease.key.id}",
        )

    # --- whenever something happened and all of it is done, before time moves on ---

    def judge(self, now_s: float) -> None:
        hands: dict[str, str] = {}
        for node in self.nodes.values():
            for lease in node.held():
                if lease.is_valid:
                    self._believed[lease] = None
                    self._judge_valid(node, lease, hands, now_s)
            for lease in node.inside:
                if not (lease.is_valid or lease.ended_because in DONE or lease.key in node.deleting):
                    self._judge_leaving(node, lease)
        for lease in [lease for lease in self._believed if not lease.is_valid]:
            del self._believed[lease]
            self._over.append(lease)
        for lease in self._over:
            if lease.is_valid:
                self.fail(f"the lease of {lease.key.holder_id} on item {lease.key.id} was over and is valid again")

    def _judge_valid(self, node: Holder, lease: ItemLease, hands: dict[str, str], now_s: float) -> None:
        key, record = lease.key, self.records[lease.key.id]
        if key in self.refused:
            self.fail(f"{node.name}'s lease on item {key.id} is still valid after its renewal was refused")
        if key.token <= self._taken.get((key.id, key.holder_id), 0) or key in node.deleting:
            return
        if key.id in hands:
            self.fail(f"item {key.id} is in the hands of {hands[key.id]} and {node.name} at once")
        hands[key.id] = node.name
        # The store may have a later token of the same holder, from an acquire that was given up and executed all the
        # same. The store's lease must last as long as this one: a process that is paused now cannot learn of its end.
        until_s = now_s + lease.remaining_s / node.clock.rate
        if record.holder_id != key.holder_id or until_s > record.until_s + ROUNDING_S:
            self.fail(
                f"{node.name}'s lease {key.token} on item {key.id} is valid until {until_s:.3f}, but the store's is "
                f"{record.token} of {record.holder_id} until {record.until_s:.3f}"
            )

    def _judge_leaving(self, node: Holder, lease: ItemLease) -> None:
        # When the lease ends, the keeper may be renewing others; and the body may clean up after its cancel.
        limit_s = 2 * self._call_s + BODY_STOP_S_MAX + SLACK_S
        since_s = self._leaving.setdefault(lease, (node.user.running_s(), node.keeper.running_s()))
        if min(node.user.running_s() - since_s[0], node.keeper.running_s() - since_s[1]) > limit_s:
            self.fail(f"{node.name}'s body of item {lease.key.id} outlived its lease")


class JudgedItems(ItemShelf):
    """The items of the memory backend; reports every change to the referee."""

    def __init__(self, now: Callable[[], dt.datetime], referee: ItemReferee) -> None:
        super().__init__(now)
        self.fired: list[str] = []
        self._referee = referee

    def apply(self, place: Place, verb: Verb, request: Request) -> bool:
        rule = decide(self.rows.get(place), verb, request)
        done = super().apply(place, verb, request)
        if rule is not None:
            self.fired.append(rule.id)
            self._referee.executed(place[1], verb, request)
        return done

    def lapse_early(self) -> None:
        """End the lease of one item, although its holder did nothing wrong, and tell the referee."""
        live = [place for place, row in self.rows.items() if row_state(row, self.now()) is Row.LIVE]
        for place in live[:1]:
            self.rows[place] = replace(self.rows[place], expires_at=self.now())
            self._referee.lapsed_early(place[1])
