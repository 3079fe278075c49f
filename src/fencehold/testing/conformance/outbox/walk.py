"""Random calls on an outbox, compared with an oracle that computes each answer from the rule table.

Most of the calls are those of a real holder.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping
from functools import partial

from fencehold.model.outbox.rules import RULES, Request, Status, Verb
from fencehold.ports.events import ClaimKey, Failure
from fencehold.testing.conformance.oracle import Move, RandomWalk, check_all_fired
from fencehold.testing.conformance.outbox.pair import EventTests, Pair, ask, event, stray
from fencehold.testing.harness import CALL_LIMIT_S, Harness

PART_OF_LEASE_WALK = 5  # fewer steps than for leases, because it checks the rows after every step
LENGTHS_S = (2.0, 5.0, 7.5)
TYPES = ("order.paid", "Order.paid", "order.sent")
AGGREGATES = (("order", "1"), ("order", "2"), ("user", "1"), (None, "1"), (None, None))


class EventWalk(EventTests):
    test_limit_s = 58.0

    async def test_a_long_walk_never_leaves_the_table(self, harness: Harness) -> None:
        walker = EventWalker(await Pair.of(harness, clients=3))
        await walker.walk(harness.traits.walk_steps // PART_OF_LEASE_WALK)
        await walker.pair.check_all()
        check_all_fired(walker.pair.oracle.fired, RULES)


class EventWalker(RandomWalk):
    """Makes the random calls. It keeps every key that was ever given: any client may use any of them late."""

    def __init__(self, pair: Pair) -> None:
        super().__init__(pair)
        self.pair = pair
        self._keys: list[ClaimKey] = [stray("never sent")]
        self._tokens = 0

    def moves(self) -> Mapping[Move, int]:
        return {
            self.move_clock: 24, self._add: 12, self._claim: 22, self._glance: 6,
            partial(self._change, Verb.RENEW): 8, partial(self._change, Verb.COMPLETE): 6, self._fail: 14,
            partial(self._change, Verb.RELEASE): 4, partial(self.call, self.pair.reap): 8, self._redrive: 6,
        }  # fmt: skip

    def edges(self) -> Iterable[dt.datetime | None]:
        rows = [row.stored for row in self.pair.oracle.rows.values()]
        return [edge for row in rows for edge in (row.due_at, row.locked_until)]

    # Draws

    def _held(self) -> list[ClaimKey]:
        return [row.key for row in self.pair.oracle.rows.values() if row.stored.status is Status.PROCESSING]

    def _some_keys(self) -> list[ClaimKey]:
        """Return some keys, one per event at most: mostly those of present claims, live or lapsed, sometimes old."""
        held = self._held()
        drawn = {}
        for _ in range(self.random.choice((1, 1, 2, 4))):
            is_old = not held or self.random.random() < 0.2
            key = self.random.choice(self._keys[-20:] if is_old else held)
            drawn[key.id] = key
        return list(drawn.values())

    def _token(self) -> str:
        self._tokens += 1
        return f"token {self._tokens}"

    # Moves

    async def _add(self) -> None:
        aggregate_type, aggregate_id = self.random.choice(AGGREGATES)
        made = [
            event(
                self.random.choice(TYPES), {"n": len(self.trail)}, self.random.choice((1, 2, 3)),
                aggregate_type=aggregate_type, aggregate_id=aggregate_id, priority=self.random.choice((0, 0, 5, -1)),
                not_before=self.random.choice((None, None, 1.5)), metadata=self.random.choice((None, {"trace": "1"})),
            )
            for _ in range(self.random.choice((1, 1, 3)))
        ]  # fmt: skip
        await self.call(self.pair.add, *made)

    async def _claim(self) -> None:
        types = self.random.choice((None, None, None, TYPES[:2], TYPES[2:], ()))
        limit, lease_s = self.random.choice((1, 2, 5)), self.random.choice(LENGTHS_S)
        asked = ask(self._token(), limit, lease_s, event_types=types, in_order=self.random.random() < 0.4)
        completed = self._some_keys() if self.random.random() < 0.3 else []
        await self.call(self.pair.claim, asked, completed)
        self._keys += [key for key in self._held() if key.token == asked.token]

    async def _glance(self) -> None:
        """Claim with `may_miss`, as a worker does: the store may miss an event, but what it claims must be free."""
        asked = ask(self._token(), 2, 5.0, may_miss=True)
        got = (await self.call(self.pair.client.port.turn, [], asked, CALL_LIMIT_S)).claims
        assert len(got) <= asked.limit
        for claim in got:
            request = Request(self.pair.now, asked.token, asked.lease_s)
            assert self.pair.oracle.change(claim.id, Verb.CLAIM, request), f"{claim} was not to be had"
            self._keys.append(claim.key)

    async def _change(self, verb: Verb) -> None:
        await self.call(self.pair.change, verb, self._some_keys(), self.random.choice(LENGTHS_S))

    async def _fail(self) -> None:
        failures = [
            Failure(key, f"error {len(self.trail)}", self.random.choice((0.0, 0.1, 2.0)), self.random.random() < 0.9)
            for key in self._some_keys()
        ]
        await self.call(self.pair.fail, *failures)

    async def _redrive(self) -> None:
        final = [
            row.id for row in self.pair.oracle.rows.values() if row.stored.status in (Status.DEAD_LETTER, Status.FAILED)
        ]
        ids = list(
            {*final[-4:], *self.random.sample(sorted(self.pair.oracle.rows), min(1, len(self.pair.oracle.rows)))}
        )
        if ids:
            await self.call(self.pair.redrive, ids, self.random.choice(("", "a bad deployment")), 3, 1.5)
