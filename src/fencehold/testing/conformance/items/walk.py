"""Random calls on the items of two kinds, compared with an oracle that computes each answer from the rule table.

Most of the calls are those of a real holder.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping
from typing import Any

from fencehold.model.items.rules import RULES, ItemKey, Row, row_state
from fencehold.ports.items import ItemRow
from fencehold.testing.conformance.items.pair import NEVER_GRANTED, ItemPair, ItemTests
from fencehold.testing.conformance.oracle import Move, RandomWalk, check_all_fired
from fencehold.testing.harness import Harness

PART_OF_LEASE_WALK = 3  # fewer steps than for leases, because it checks the items after every step
LENGTHS_S = (2.0, 7.0, 20.0)
KINDS = ("negotiation", "Negotiation")
IDS = ("1", "2", "3", "a", "A")
STATES = ("NEW", "new", "SENT")
HOLDERS = ("ada", "Ada", "bob")


class ItemWalk(ItemTests):
    test_limit_s = 58.0

    async def test_a_long_walk_never_leaves_the_table(self, harness: Harness) -> None:
        walker = ItemWalker([await ItemPair.of(harness, 2, kind) for kind in KINDS])
        await walker.walk(harness.traits.walk_steps // PART_OF_LEASE_WALK)
        for pair in walker.pairs:
            await pair.find()
        check_all_fired({rule for pair in walker.pairs for rule in pair.oracle.fired}, RULES)


class ItemWalker(RandomWalk):
    """Makes the random calls. It keeps every key that was ever given: any client may use any of them late.

    A key may even be used for an item of the other kind.
    """

    def __init__(self, pairs: list[ItemPair]) -> None:
        super().__init__(*pairs)
        self.pairs = pairs
        self.pair = pairs[0]
        self._keys = [ItemKey("1", "ada", NEVER_GRANTED)]

    def moves(self) -> Mapping[Move, int]:
        self.pair = self.random.choice(self.pairs)
        return {
            self.move_clock: 16, self._put: 18, self._acquire: 16, self._next: 14, self._renew: 12, self._break: 9,
            self._save: 14, self._delete: 7, self._find: 3,
        }  # fmt: skip

    def edges(self) -> Iterable[dt.datetime | None]:
        rows = [row for pair in self.pairs for row in pair.oracle.rows.values()]
        return [row.expires_at for row in rows if row_state(row, self.pair.now) is Row.LIVE]

    # Draws

    def _live(self) -> list[ItemKey]:
        rows = self.pair.oracle.rows.items()
        return [self.pair.key(item_id) for item_id, row in rows if row_state(row, self.pair.now) is Row.LIVE]

    def _a_key(self) -> ItemKey:
        """Return mostly the key of a live lease; sometimes an old key, or a key of a holder that never had the item."""
        live = self._live()
        if live and self.random.random() < 0.75:
            return self.random.choice(live)
        old = self.random.choice(self._keys[-12:])
        aim = self.random.choice([*live, old, old])
        return ItemKey(aim.id, self.random.choice((old.holder_id, *HOLDERS)), self.random.choice((old, aim)).token)

    def _an_item_and_holder(self) -> tuple[str, str]:
        """Return sometimes an item with its present holder, else any item and any holder."""
        live = self._live()
        if live and self.random.random() < 0.3:
            key = self.random.choice(live)
            return key.id, key.holder_id
        return self.random.choice(IDS), self.random.choice(HOLDERS)

    def _some_keys(self) -> list[ItemKey]:
        """Return some keys, one per item at most."""
        drawn = (self._a_key() for _ in range(self.random.choice((1, 1, 2, 4))))
        return list({key.id: key for key in drawn}.values())

    # Moves

    async def _put(self) -> None:
        (item_id, holder), state = self._an_item_and_holder(), self.random.choice(STATES)
        await self.call(self.pair.put, item_id, state, {"step": len(self.trail)}, holder)

    async def _acquire(self) -> None:
        item_id, holder = self._an_item_and_holder()
        answer = await self.call(self.pair.acquire, item_id, holder, self.random.choice(LENGTHS_S))
        if isinstance(answer, ItemRow):
            self._keys.append(answer.key)

    async def _next(self) -> None:
        state, holder = self.random.choice(STATES), self.random.choice(HOLDERS)
        limit, lease_s = self.random.choice((0, 1, 1, 2, 9)), self.random.choice(LENGTHS_S)
        ids = await self.call(self.pair.next, state, limit, holder, lease_s)
        self._keys += [self.pair.key(item_id) for item_id in ids]

    async def _renew(self) -> None:
        await self.call(self.pair.renew, self._some_keys(), self.random.choice(LENGTHS_S))

    async def _break(self) -> None:
        keys = self._some_keys()
        if self.random.random() < 0.3:
            keys = [ItemKey(key.id, key.holder_id, 0) for key in keys]
        await self.call(self.pair.break_leases, *keys)

    async def _save(self) -> None:
        key, state = self._a_key(), self.random.choice((None, *STATES))
        documents: tuple[dict[str, Any], ...] = ({}, {"document": None}, {"document": {"step": len(self.trail)}})
        await self.call(self.pair.save, key, state, **self.random.choice(documents))

    async def _delete(self) -> None:
        await self.call(self.pair.delete, self._a_key())

    async def _find(self) -> None:
        state, limit = self.random.choice((None, *STATES)), self.random.choice((0, 1, 3, 99))
        await self.call(self.pair.find, state, limit)
