"""Random calls with the rule table as the oracle; most of them are calls of a real holder."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping

from fencehold.model.election.leases import RULES, Ask, Lease, Row, TermKey, Verb
from fencehold.ports.backend import Backend
from fencehold.ports.leases import Answer
from fencehold.testing.conformance.leases.oracle import Oracle
from fencehold.testing.conformance.oracle import agree, check_all_fired
from fencehold.testing.conformance.suite import START, LeaseTests
from fencehold.testing.conformance.walker import Move, RandomWalk
from fencehold.testing.harness import CALL_LIMIT_S, Harness

NAMES = ("alpha", "Alpha", "beta")
HOLDERS = ("ada", "bob", "cy")
LENGTHS_S = (5.0, 7.5, 20.0)
REFUSABLE = {
    f"{state.value}.{verb.value}" for state in Row for verb in Verb if verb is not Verb.ACQUIRE or state is Row.LIVE
}


class Walk(LeaseTests):
    test_limit_s = 58.0

    async def test_a_long_walk_never_leaves_the_table(self, harness: Harness) -> None:
        clients = [await harness.client() for _ in range(3)]
        walker = Walker(harness, clients)
        await walker.walk(harness.traits.walk_steps)
        check_all_fired(walker.oracle.fired, RULES)
        assert walker.oracle.refused == REFUSABLE, "a refusal never happened"


class Walker(RandomWalk):
    """Keeps every token and every request that was ever made: any client may use any of them late."""

    def __init__(self, harness: Harness, clients: list[Backend]) -> None:
        super().__init__()
        self.oracle = Oracle(harness.applied)
        self._harness = harness
        self._clients = clients
        self._now = START
        self._asks: list[Ask] = [Ask(name, "nobody", 5.0, "never sent") for name in NAMES]
        self._keys: list[TermKey] = [TermKey(name, "nobody", 1, 5.0) for name in NAMES]
        self._unknown = TermKey("a name that nobody ever asks for", "ada", 1, 5.0)

    def moves(self) -> Mapping[Move, int]:
        return {
            self._move_clock: 30, self._acquire: 22, self._renew: 24, self._release: 8, self._ask_step_down: 8,
            self._read: 8,
        }  # fmt: skip

    # Draws

    def _client(self) -> Backend:
        return self.random.choice(self._clients)

    def _key(self) -> TermKey:
        """Mostly a current token, whether live or lapsed; sometimes an old one, or one that never existed."""
        current = [row.key(self.random.choice(LENGTHS_S)) for row in self.oracle.rows.values()]
        draw = self.random.random()
        if current and draw < 0.7:
            return self.random.choice(current)
        if draw > 0.96:
            return self._unknown
        key = self.random.choice(self._keys[-12:] if draw < 0.85 else self._keys)
        if draw > 0.92:
            return TermKey(key.name, self.random.choice(HOLDERS), key.epoch + self.random.choice((-1, 1)), 5.0)
        return key

    def _instant(self) -> dt.datetime:
        """Mostly around the expiry of some lease, where off-by-one errors show."""
        rows = list(self.oracle.rows.values())
        draw = self.random.random()
        if rows and draw < 0.6:
            edge = self.random.choice(rows).expires_at + self.random.choice((-1, 0, 1)) * self._harness.traits.tick
            if edge >= self._now or draw < 0.05:
                return edge
        return self._now + dt.timedelta(milliseconds=self.random.randrange(0, 3000))

    # Moves

    async def _move_clock(self) -> None:
        self._now = self._instant()
        self.note(f"clock to {self._now.isoformat()}")
        await self._harness.set_clock(self._now)

    async def _acquire(self) -> None:
        ask = Ask(
            self.random.choice(NAMES), self.random.choice(HOLDERS), self.random.choice(LENGTHS_S),
            f"nonce {len(self._asks)}",
        )  # fmt: skip
        if self.random.random() < 0.25:
            ask = self.random.choice(self._asks[-6:])
        self._asks.append(ask)
        self.note(f"acquire {ask}")
        got = await self._client().leases.acquire(ask, CALL_LIMIT_S)
        agree(got, self.oracle.acquire(ask, self._now), f"acquire {ask}")
        if isinstance(got, Lease):
            self._keys.append(got.key(ask.lease_s))

    async def _renew(self) -> None:
        await self._batch(Verb.RENEW)

    async def _release(self) -> None:
        await self._batch(Verb.RELEASE)

    async def _batch(self, verb: Verb) -> None:
        """One key per name at most: what a key given twice means is tested elsewhere."""
        keys = list({key.name: key for key in (self._key() for _ in range(self.random.choice((1, 1, 2, 3))))}.values())
        self.note(f"{verb.value} {keys}")
        leases = self._client().leases
        got = await (leases.renew if verb is Verb.RENEW else leases.release)(keys, CALL_LIMIT_S)
        assert len(got) == len(keys)
        for key, answer in zip(keys, got, strict=True):
            agree(answer, self.oracle.change(verb, key, self._now), f"{verb.value} {key}")

    async def _ask_step_down(self) -> None:
        key = self._key()
        self.note(f"ask_step_down {key}")
        got: Answer = await self._client().leases.ask_step_down(key.name, key.epoch, CALL_LIMIT_S)
        agree(got, self.oracle.change(Verb.ASK_STEP_DOWN, key, self._now), f"ask_step_down {key}")

    async def _read(self) -> None:
        self.note("list")
        rows = {lease.name: lease for lease in await self._client().leases.list("", CALL_LIMIT_S)}
        assert rows.keys() == self.oracle.rows.keys()
        for name, row in rows.items():
            agree(row, self.oracle.view(name, self._now), f"list, {name}")
