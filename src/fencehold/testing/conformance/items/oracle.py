"""The rule table as an oracle: what a store of items must answer, computed from model/items/items.py alone."""

from __future__ import annotations

import datetime as dt
import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

from fencehold.model.items.items import Request, Row, Rule, StoredItem, Verb, decide, refusal_reason, row_state
from fencehold.ports.items import ItemAnswer, ItemRefusal, ItemRow

REMAINING_S_OFF_MAX = 1e-6  # a difference of two instants, as a float


class ItemOracle:
    """Items as the rules require them. `fired` counts rules that applied, `refused` states and verbs without a rule."""

    def __init__(self) -> None:
        self.rows: dict[str, StoredItem] = {}
        self.token_highest: dict[str, int] = {}  # of each item that ever existed: a delete does not reset it
        self.fired: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self.last_rule: dict[str, Rule | None] = {}  # for the last verb on this item; None: refused

    def change(self, item_id: str, verb: Verb, request: Request) -> ItemAnswer | None:
        """Apply the verb by the table and return the required answer; None: the item is gone, or never existed."""
        row = self.rows.get(item_id)
        rule = self.last_rule[item_id] = decide(row, verb, request)
        if rule is None:
            self.refused[f"{row_state(row, request.now).value}.{verb.value}"] += 1
            return ItemRefusal(refusal_reason(row, request.now), self.view(item_id, request.now))
        self.fired[rule.id] += 1
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
        """Return the items that may be taken, the longest in this state first."""
        found = (i for i, row in self.rows.items() if row.state == state and row_state(row, now) is Row.FREE)
        return self.oldest_first(found)

    def oldest_first(self, ids: Iterable[str]) -> list[str]:
        return sorted(ids, key=lambda item_id: self.rows[item_id].state_timestamp)


def agree(got: ItemAnswer | None, expected: ItemAnswer | None, what: str) -> None:
    """Fail unless both are the same kind of answer about the same item."""
    match got, expected:
        case ItemRefusal(), ItemRefusal():
            assert got.reason == expected.reason, f"{what}: refused as {got.reason}, the table says {expected.reason}"
            agree(got.current, expected.current, f"{what}, the item shown")
        case ItemRow(), ItemRow():
            _agree_on_row(got, expected, what)
        case None, None:
            pass
        case _:
            raise AssertionError(f"{what}:\n  the store says {got}\n  the table says {expected}")


def _agree_on_row(got: ItemRow, expected: ItemRow, what: str) -> None:
    off_s = abs(got.remaining_s - expected.remaining_s)
    assert off_s <= REMAINING_S_OFF_MAX, f"{what}: {got.remaining_s} s left, not {expected.remaining_s}"
    assert json.loads(got.document_json) == json.loads(expected.document_json), f"{what}: another document"
    same = replace(got, remaining_s=expected.remaining_s, document_json=expected.document_json) == expected
    assert same, f"{what}:\n  the store says {got}\n  the table says {expected}"
