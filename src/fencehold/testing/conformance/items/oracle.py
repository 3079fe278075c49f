"""The rule table as an oracle: what a store of items must answer, computed from model/items/items.py alone."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable
from dataclasses import replace

from fencehold.model.items.items import Request, Row, StoredItem, Verb, decide, refusal_reason, row_state
from fencehold.ports.items import ItemAnswer, ItemRefusal, ItemRow
from fencehold.testing.conformance.oracle import RuleOracle


class ItemOracle(RuleOracle):
    """Items as the rules require them."""

    table = "items"

    def __init__(self, applied: set[str] | None = None) -> None:
        super().__init__(applied)
        self.rows: dict[str, StoredItem] = {}
        self.token_highest: dict[str, int] = {}  # of each item that ever existed: a delete does not reset it

    def change(self, item_id: str, verb: Verb, request: Request) -> ItemAnswer | None:
        """Apply the verb by the table and return the required answer; None: the item is gone, or never existed."""
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
        """Return the items that may be taken, the longest in this state first."""
        found = (i for i, row in self.rows.items() if row.state == state and row_state(row, now) is Row.FREE)
        return self.oldest_first(found)

    def oldest_first(self, ids: Iterable[str]) -> list[str]:
        return sorted(ids, key=lambda item_id: self.rows[item_id].state_timestamp)
