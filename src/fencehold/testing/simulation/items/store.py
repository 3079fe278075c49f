"""The store of the items: the memory backend's, with the referee beside every change."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from dataclasses import replace

from fencehold.backends.memory.items import ItemShelf, Place
from fencehold.model.items.items import Request, Row, Verb, decide, row_state
from fencehold.testing.simulation.items.referee import ItemReferee


class JudgedItems(ItemShelf):
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
        """End the lease that was granted first, although its holder did nothing wrong."""
        live = [place for place, row in self.rows.items() if row_state(row, self.now()) is Row.LIVE]
        for place in live[:1]:
            self.rows[place] = replace(self.rows[place], expires_at=self.now())
            self._referee.lapsed_early(place[1])
