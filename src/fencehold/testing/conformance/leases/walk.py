"""Random calls on leases, compared with an oracle that computes each answer from the rule table.

Most of the calls are those of a real holder.
"""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial

from fencehold.model.election.rules import RULES, Ask, Lease, Row, TermKey, Verb
from fencehold.model.errors import LeaseLost
from fencehold.testing.conformance.leases.fences import fenced
from fencehold.testing.conformance.leases.pair import LeasePair
from fencehold.testing.conformance.oracle import Move, RandomWalk, agree, check_all_fired
from fencehold.testing.conformance.suite import LeaseTests
from fencehold.testing.harness import CALL_LIMIT_S, Can, Harness

NAMES = ("alpha", "Alpha", "beta")
HOLDERS = ("ada", "bob", "cy")
LENGTHS_S = (5.0, 7.5, 20.0)
REFUSABLE = {
    f"{state.value}.{verb.value}" for state in Row for verb in Verb if verb is not Verb.ACQUIRE or state is Row.LIVE
}


class Walk(LeaseTests):
    test_limit_s = 58.0

    async def test_a_long_walk_never_leaves_the_table(self, harness: Harness) -> None:
        walker = Walker(await LeasePair.of(harness, clients=3))
        await walker.walk(harness.traits.walk_steps)
        check_all_fired(walker.pair.oracle.fired, RULES)
        assert walker.pair.oracle.refused == REFUSABLE, "a refusal never happened"


class Walker(RandomWalk):
    """Makes the random calls. It keeps every key and every request that was ever made: any client may use them late.

    The names of all its leases begin with `prefix`, so that several walks in one namespace do not meet.
    """

    goes_back = 0.03

    def __init__(self, pair: LeasePair, prefix: str = "", rng: random.Random | None = None) -> None:
        super().__init__(pair, rng=rng)
        self.pair = pair
        self._prefix, self._names = prefix, [f"{prefix}{name}" for name in NAMES]
        self._asks: list[Ask] = [Ask(name, "nobody", 5.0, "never sent") for name in self._names]
        self._keys: list[TermKey] = [TermKey(name, "nobody", 1, 5.0) for name in self._names]
        self._lease_ids: dict[str, str] = {}  # the store's own, by which a fence knows its database
        self._unknown = TermKey("a name that nobody ever asks for", "ada", 1, 5.0)

    def moves(self) -> Mapping[Move, int]:
        fences: dict[Move, int] = {self._write: 14} if self.pair.harness.can(Can.FENCES) else {}
        return fences | {
            self.move_clock: 30, self._acquire: 22, partial(self._use, Verb.RENEW): 24,
            partial(self._use, Verb.RELEASE): 8, partial(self._use, Verb.ASK_STEP_DOWN): 8, self._list: 8,
        }  # fmt: skip

    def edges(self) -> Iterable[dt.datetime]:
        return [row.expires_at for row in self.pair.oracle.rows.values()]

    def _key(self) -> TermKey:
        """Return a key: mostly a present one, live or lapsed, or a present one with a wrong epoch or holder.

        Seldom it is an old key, or one of a lease that never existed.
        """
        current = [row.key(self.random.choice(LENGTHS_S)) for row in self.pair.oracle.rows.values()]
        draw = self.random.random()
        if draw > 0.97:
            return self._unknown
        if not current or draw > 0.8:
            return self.random.choice(self._keys[-12:])
        key = self.random.choice(current)
        if draw > 0.7:
            return replace(key, epoch=key.epoch + self.random.choice((-1, 1)))
        return replace(key, holder_id=self.random.choice(HOLDERS)) if draw > 0.6 else key

    async def _acquire(self) -> None:
        ask = Ask(
            self.random.choice(self._names), self.random.choice(HOLDERS), self.random.choice(LENGTHS_S),
            f"nonce {len(self._asks)}",
        )  # fmt: skip
        if self.random.random() < 0.25:
            ask = self.random.choice(self._asks[-6:])
        self._asks.append(ask)
        got = await self.call(self.pair.acquire, ask)
        if isinstance(got, Lease):
            self._keys.append(got.key(ask.lease_s))
            self._lease_ids[got.name] = got.lease_id

    async def _use(self, verb: Verb) -> None:
        """Call the verb with random keys, one per name at most: what a key given twice means is tested elsewhere."""
        keys = list({key.name: key for key in (self._key() for _ in range(self.random.choice((1, 1, 2, 3))))}.values())
        await self.call(self.pair.use, verb, *keys)

    async def _write(self) -> None:
        key, accepted = self._key(), True
        key = replace(key, lease_id=self._lease_ids.get(key.name, ""))
        self.note(f"write under {key}")
        try:
            await fenced(self.pair.harness, self.pair.client, key, key.epoch)
        except LeaseLost:
            accepted = False
        assert accepted is self.pair.oracle.may_write(key, self.pair.now), f"a write under {key}: {accepted}"

    async def _list(self) -> None:
        found = await self.call(self.pair.client.leases.list, self._prefix, CALL_LIMIT_S)
        rows = {lease.name: lease for lease in found}
        assert rows.keys() == self.pair.oracle.rows.keys()
        for name, row in rows.items():
            agree(row, self.pair.oracle.view(name, self.pair.now), f"list, {name}")
