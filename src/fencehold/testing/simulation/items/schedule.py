"""Items: users who are cancelled, processors, and rows that lapse early, besides what befalls every kind."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from fencehold.model.items.items import RULES
from fencehold.model.items.settings import item_settings
from fencehold.runtime.items.item import LIMIT_S
from fencehold.testing.simulation.backend import new_shelf
from fencehold.testing.simulation.items.node import LAST_STATE, ItemNode
from fencehold.testing.simulation.items.referee import ItemReferee, JudgedItems
from fencehold.testing.simulation.schedule import LIVENESS_SLACK_S, NODES, Schedule, Trouble


class ItemSchedule(Schedule):
    rules = frozenset(rule.id for rule in RULES)
    settles_s = LIMIT_S
    referee: ItemReferee
    nodes: Sequence[ItemNode]

    def __init__(self, seed: int, trace: bool) -> None:
        super().__init__(seed, trace)
        self.settings = item_settings(lease=self.lease_s, stall_limit=self.lease_s * (0.5 + self.draw()))
        self.referee = ItemReferee(self.loop, self.trace, self.settings)
        self.shelf = new_shelf(self.loop)
        self.shelf.items = self.items = JudgedItems(self.shelf.now, self.referee)
        self.rules_fired = self.items.fired
        self.nodes = [ItemNode(name, self.line(), self.shelf, self.settings, self.referee, self.rng) for name in NODES]

    def troubles(self) -> tuple[Trouble, ...]:
        return (
            (0.25, self.pauses), (0.13, self.blocks), (0.20, self.gets_no_answers), (0.06, self.store_restarts),
            (0.10, self.restarts), (0.10, lambda: self.rng.choice(self.nodes).cancel_act()),
            (0.05, self.items.lapse_early),
        )  # fmt: skip

    async def judge_calm(self) -> None:
        """Whatever was held is given back, or lapses: then one process alone can have it all."""
        stopping = [node.user.begin(node.rest()) for node in self.nodes]
        await asyncio.wait(stopping)
        for task in stopping:
            task.result()
        self.nodes[0].user.begin(self.nodes[0].finish())
        # An acquire that was cancelled may be under way still; what is taken meanwhile is left to lapse.
        limit_s = self.settings.trusted_s + self.lease_s + LIVENESS_SLACK_S
        rows = self.items.rows
        await self.wait_for(lambda: all(r.state == LAST_STATE for r in rows.values()), limit_s, "items are not free")

    def judge_left(self) -> None:
        now = self.shelf.now()
        held = [item_id for item_id, record in self.referee.records.items() if record.until > now]
        self.referee.must(not held, f"items are held: {held}")
