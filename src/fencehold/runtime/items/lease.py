"""The lease on one item, as this process sees it."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable

from fencehold.model.errors import LeaseLost
from fencehold.model.items.items import ItemKey
from fencehold.model.items.settings import ItemSettings
from fencehold.ports.clock import Clock
from fencehold.ports.fact_table import ItemFacts
from fencehold.ports.facts import FactSink
from fencehold.runtime.core.renewals import Kept
from fencehold.runtime.core.trust import DEADLINE_PASSED, REFUSED, STORE_CLOSED

LEFT, DELETED, BROKEN = "left", "deleted", "broken"
SUPERSEDED, GRANTED_TOO_LATE, ABANDONED = "superseded", "granted_too_late", "abandoned"
DELETE_UNANSWERED = "delete_unanswered"
DONE = frozenset({LEFT, DELETED})  # how a body ends its own lease: no reason to stop it
MEANT = frozenset({*DONE, BROKEN, SUPERSEDED, STORE_CLOSED})  # this process wanted it so: not logged as a loss
GONE = frozenset({DELETED, BROKEN, SUPERSEDED, STORE_CLOSED, REFUSED})  # nothing is left that could be given back


class ItemLease(Kept):
    """A loss is logged once; `on_end` is called when the lease ends, for whatever reason, on any thread."""

    def __init__(
        self, kind: str, key: ItemKey, until: dt.datetime, sent_s: float, settings: ItemSettings, *, clock: Clock,
        facts: FactSink,
    ) -> None:  # fmt: skip
        super().__init__(clock, sent_s, settings.trusted_s)
        self.kind, self.key, self.settings = kind, key, settings
        self.expires_at = until
        self.renew_at_s = sent_s + settings.heartbeat_every_s
        self.max_s = math.inf  # how long its body may take
        self.on_end: Callable[[], None] | None = None
        self._sink = facts

    def renewed(self, until: dt.datetime, sent_s: float) -> bool:
        """Record a renewal by the store. False if the lease is over here already: the renewal then has no effect."""
        in_time = self.extend(sent_s, self.settings.trusted_s)
        if in_time:
            self.expires_at = max(self.expires_at, until)
            self.renew_at_s = self.renewed_s + self.settings.heartbeat_every_s
        return in_time

    def end(self, reason: str, given_up: bool = False) -> bool:
        if not super().end(reason, given_up or reason in MEANT):
            return False
        if not self.is_given_up:
            self.log_lost()
        if self.on_end is not None:
            self.on_end()
        return True

    def check(self) -> None:
        """Raise LeaseLost unless the lease is valid at this instant."""
        if not self.is_valid:
            self.end(DEADLINE_PASSED)
            raise self.error()

    def refused(self, reason: str) -> LeaseLost:
        """The store said no: end it and return the error to raise."""
        self.end(REFUSED)
        return self.error(reason)

    def error(self, reason: str = "") -> LeaseLost:
        key, why = self.key, " ".join([self.ended_because, f"({reason})" if reason else ""]).strip()
        return LeaseLost(
            f"Item {key.id!r} of kind {self.kind!r} is no longer held under token {key.token}: {why}.",
            hint="Whatever was not saved by now is not saved. Acquire it anew and look at its state first.",
            item_id=key.id, token=key.token,
        )  # fmt: skip

    @property
    def facts(self) -> ItemFacts:
        """Facts about this lease, as it is now."""
        return ItemFacts(
            self._sink, kind=self.kind, id=self.key.id, holder_id=self.key.holder_id, token=self.key.token,
            expires_at=self.expires_at.isoformat(),
        )  # fmt: skip

    def log_lost(self) -> None:
        self.facts.item_lost(reason=self.ended_because)
