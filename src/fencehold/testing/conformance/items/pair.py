"""Clients of the items of one kind, side by side with an oracle that computes the right answers from the rule table."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from fencehold.model.items.rules import ItemKey, Request, Row, StoredItem, Verb, decide, refusal_reason, row_state
from fencehold.ports.items import ItemAnswer, ItemRefusal, ItemRow, ItemStore, NewItem
from fencehold.testing.conformance.oracle import ClientsAndOracle, RuleOracle, agree
from fencehold.testing.conformance.suite import LEASE_S, START, Supply, WithoutLeases, needs
from fencehold.testing.harness import CALL_LIMIT_S, ITEM_KIND, Can, Harness

EVERYTHING = 10_000
NEVER_GRANTED = 987_654_321  # a token that no lease of the suite has


def as_json(document: Any) -> str:
    """Return the document as JSON, exactly as the library serialises it."""
    return json.dumps(document, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def row(answer: ItemAnswer) -> ItemRow:
    """Return the item if the answer is one; else fail and show the answer."""
    assert isinstance(answer, ItemRow), f"not granted: {answer}"
    return answer


def refused(answer: ItemAnswer | None) -> ItemRefusal:
    assert isinstance(answer, ItemRefusal), f"not refused: {answer}"
    return answer


class ItemOracle(RuleOracle):
    """Computes from the rule table in model/items/rules.py alone which items a store must have, and its answers."""

    table = "items"
    rows: dict[str, StoredItem]

    def __init__(self, applied: set[str]) -> None:
        super().__init__(applied)
        self.token_highest: dict[str, int] = {}  # of each item that ever existed: a delete does not reset it

    def change(self, item_id: str, verb: Verb, request: Request) -> ItemAnswer | None:
        """Apply the verb by the rule table and return the required answer.

        A refused verb gives an ItemRefusal, an allowed one the item; None: the item was deleted, or never existed.
        """
        row = self.rows.get(item_id)
        rule = decide(row, verb, request)
        self.decided(item_id, rule, row_state(row, request.now), verb)
        if rule is None:
            return ItemRefusal(refusal_reason(row, request.now), self.view(item_id, request.now))
        after = rule.then(row, request)
        if after is None:
            self.rows.pop(item_id, None)
        else:
            self.rows[item_id] = after
            self.token_highest[item_id] = max(after.token, self.token_highest.get(item_id, 0))
        return self.view(item_id, request.now)

    def view(self, item_id: str, now: dt.datetime) -> ItemRow | None:
        row = self.rows.get(item_id)
        if row is None:
            return None
        view = ItemRow(item_id, row.state, row.state_timestamp, row.document, row.token)
        if row_state(row, now) is not Row.LIVE:
            return view
        assert row.expires_at is not None, "a live lease ends"
        return replace(
            view, holder_id=row.holder_id, leased_at=row.leased_at, lease_s=row.lease_s, expires_at=row.expires_at,
            remaining_s=(row.expires_at - now).total_seconds(),
        )  # fmt: skip

    def free_in(self, state: str, now: dt.datetime) -> list[str]:
        """Return the ids of the items in this state that may be taken, the one that is longest in the state first."""
        found = (i for i, row in self.rows.items() if row.state == state and row_state(row, now) is Row.FREE)
        return self.oldest_first(found)

    def oldest_first(self, ids: Iterable[str]) -> list[str]:
        return sorted(ids, key=lambda item_id: self.rows[item_id].state_timestamp)


class ItemPair(ClientsAndOracle[ItemStore, ItemOracle]):
    """The items of one kind, in the store and in the oracle: every call goes to both, and a difference fails.

    The oracle computes from the rule table what the store must answer.
    """

    def __init__(self, harness: Harness, clients: Sequence[ItemStore]) -> None:
        super().__init__(harness, clients, ItemOracle)
        self.tick = harness.traits.item_tick or harness.traits.tick

    @classmethod
    async def of(cls, harness: Harness, clients: int = 2, kind: str = ITEM_KIND) -> ItemPair:
        await harness.set_clock(START)
        return cls(harness, [await harness.items(kind) for _ in range(clients)])

    def key(self, item_id: str) -> ItemKey:
        """Return the key of the item's present lease, or of its last one if nobody has it."""
        stored = self.oracle.rows[item_id]
        return ItemKey(item_id, stored.holder_id or "nobody", stored.token)

    async def put(self, item_id: str, state: str = "NEW", document: Any = None, holder: str = "ada") -> ItemAnswer:
        text = as_json(document)
        got = await self.client.port.put(NewItem(item_id, state, text, holder), CALL_LIMIT_S)
        expected = self.oracle.change(item_id, Verb.PUT, Request(self.now, holder, state=state, document=text))
        return await self._same(got, expected, item_id, f"put {item_id} in {state}")

    async def acquire(self, item_id: str, holder: str = "ada", lease_s: float = LEASE_S) -> ItemAnswer:
        got = await self.client.leases.acquire(item_id, holder, lease_s, CALL_LIMIT_S)
        token = self._fresh_token(got) if isinstance(got, ItemRow) else NEVER_GRANTED
        request = Request(self.now, holder, next_token=token, lease_s=lease_s)
        expected = self.oracle.change(item_id, Verb.ACQUIRE, request)
        return await self._same(got, expected, item_id, f"{holder} acquires {item_id}")

    async def take(self, item_id: str, holder: str = "ada", lease_s: float = LEASE_S) -> ItemKey:
        """Acquire the item and return the key of the new lease."""
        return row(await self.acquire(item_id, holder, lease_s)).key

    async def leased(self, item_id: str, document: Any = None, holder: str = "ada") -> ItemKey:
        """Put a new item, acquire it and return the key of its first lease."""
        await self.put(item_id, document=document, holder=holder)
        return await self.take(item_id, holder)

    async def renew(self, keys: Sequence[ItemKey], lease_s: float = LEASE_S) -> list[str]:
        """Renew the leases with these keys, and return the ids of the items whose renewal was not refused."""
        got = await self.client.leases.renew(keys, lease_s, CALL_LIMIT_S)
        until = self.now + dt.timedelta(seconds=lease_s)
        requests = ((key, Request(self.now, key.holder_id, key.token, lease_s=lease_s)) for key in keys)
        answers = ((key, self.oracle.change(key.id, Verb.RENEW, request)) for key, request in requests)
        expected = {key: until for key, answer in answers if isinstance(answer, ItemRow)}
        assert got == expected, f"renew {keys}:\n  the store says {got}\n  the table says {expected}"
        await self.check((key.id for key in keys), f"renew {keys}")
        return [key.id for key in expected]

    async def break_leases(self, *keys: ItemKey) -> dict[ItemKey, ItemRefusal]:
        """Break the leases, given with one key per item at most, and return the refusals by key."""
        got = await self.client.leases.break_leases(keys, CALL_LIMIT_S)
        requests = ((key, Request(self.now, key.holder_id, key.token)) for key in keys)
        answers = [(key, self.oracle.change(key.id, Verb.BREAK, request)) for key, request in requests]
        expected = {key: answer for key, answer in answers if isinstance(answer, ItemRefusal)}
        assert set(got) == set(expected), f"break {keys}:\n  refused {got}\n  the table refuses {expected}"
        for key, answer in expected.items():
            agree(got[key], answer, f"break {key}")
        await self.check((key.id for key in keys), f"break {keys}")
        return got

    async def save(self, key: ItemKey, state: str | None = None, **given: Any) -> ItemAnswer:
        """Save the item and return the answer.

        `document=` takes any value, also None, which is JSON's null; without this argument the document stays as it is.
        """
        text = as_json(given["document"]) if given else None
        got = await self.client.port.save(key, state, text, CALL_LIMIT_S)
        request = Request(self.now, key.holder_id, key.token, state=state, document=text)
        return await self._same(got, self.oracle.change(key.id, Verb.SAVE, request), key.id, f"save {key} as {state}")

    async def delete(self, key: ItemKey) -> ItemRefusal | None:
        got = await self.client.port.delete(key, CALL_LIMIT_S)
        expected = self.oracle.change(key.id, Verb.DELETE, Request(self.now, key.holder_id, key.token))
        agree(got, expected, f"delete {key}")
        await self.check([key.id], f"delete {key}")
        return got

    async def next(
        self,
        state: str,
        limit: int = EVERYTHING,
        holder: str = "ada",
        lease_s: float = LEASE_S,
        skip: Sequence[str] = (),
    ) -> list[str]:
        """Take up to `limit` free items in this state, without those in `skip`, and return their ids.

        Items that entered the state at the same instant come in any order.
        """
        free = [item_id for item_id in self.oracle.free_in(state, self.now) if item_id not in skip][:limit]
        since = [self.oracle.rows[item_id].state_timestamp for item_id in free]
        got = await self.client.leases.next_for_state(state, limit, holder, lease_s, CALL_LIMIT_S, skip)
        what = f"{holder} takes {limit} in {state}"
        assert [one.state_timestamp for one in got] == since, f"{what}: {got}, the table says {free}"
        for one in got:
            request = Request(self.now, holder, next_token=self._fresh_token(one), lease_s=lease_s, state=state)
            agree(one, self.oracle.change(one.id, Verb.NEXT, request), what)
        ids = [one.id for one in got]
        assert len(set(ids)) == len(ids), f"{what}: one of them twice"
        assert not set(ids) & set(skip), f"{what}: one that was to be skipped"
        await self.check([*ids, *skip], what)
        return ids

    async def find(self, state: str | None = None, limit: int = EVERYTHING) -> list[str]:
        of_state = (i for i, stored in self.oracle.rows.items() if state is None or stored.state == state)
        since = [self.oracle.rows[item_id].state_timestamp for item_id in self.oracle.oldest_first(of_state)]
        got = await self.client.admin.find(state, limit, CALL_LIMIT_S)
        assert [one.state_timestamp for one in got] == since[:limit], f"find {state}: {got}"
        assert len({one.id for one in got}) == len(got)
        for one in got:
            agree(one, self.oracle.view(one.id, self.now), f"find {state}")
        return [one.id for one in got]

    async def check(self, ids: Iterable[str], what: str) -> None:
        """Check that the store has each of these items exactly as the oracle has it, or lacks it as the oracle does."""
        asked = list(dict.fromkeys(ids))
        if not asked:
            return
        got = await self.client.port.get(asked, CALL_LIMIT_S)
        assert set(got) <= set(asked), f"{what}: {set(got) - set(asked)} was not asked for"
        for item_id in asked:
            agree(got.get(item_id), self.oracle.view(item_id, self.now), what)

    def _fresh_token(self, granted: ItemRow) -> int:
        highest = self.oracle.token_highest.get(granted.id, 0)
        assert granted.token > highest, f"{granted.id} was leased under token {highest} before: {granted}"
        return granted.token

    async def _same(self, got: ItemAnswer, expected: ItemAnswer | None, item_id: str, what: str) -> ItemAnswer:
        agree(got, expected, what)
        await self.check([item_id], what)
        return got


async def items_at_start(harness: Harness) -> ItemStore:
    """Return one more client of the items, and stop the store's clock at START."""
    await harness.set_clock(START)
    return await harness.items()


@needs(Can.ITEMS)
class ItemTests(WithoutLeases):
    supplies: ClassVar[Mapping[str, Supply]] = {
        "pair": ItemPair.of,
        **dict.fromkeys(("items", "one", "two"), items_at_start),
    }
