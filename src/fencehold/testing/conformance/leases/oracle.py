"""The rule table as an oracle: what a store must answer, computed from model/election/leases.py alone."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace

from fencehold.model.election.leases import (
    Ask,
    Lease,
    Refusal,
    Request,
    TermKey,
    Verb,
    decide,
    is_holder,
    refusal_reason,
    row_state,
)
from fencehold.testing.conformance.oracle import RuleOracle


class Oracle(RuleOracle):
    """Rows as the rules require them."""

    table = "leases"

    def __init__(self, applied: set[str] | None = None) -> None:
        super().__init__(applied)
        self.rows: dict[str, Lease] = {}

    def acquire(self, ask: Ask, now: dt.datetime) -> Lease | Refusal:
        return self._answer(Verb.ACQUIRE, Request(ask.name, now, ask.holder_id, 0, ask.lease_s, ask.nonce))

    def change(self, verb: Verb, key: TermKey, now: dt.datetime) -> Lease | Refusal:
        return self._answer(verb, Request(key.name, now, key.holder_id, key.epoch, key.lease_s))

    def may_write(self, key: TermKey, now: dt.datetime) -> bool:
        """Whether the fence must accept a write: the row is live and has this holder and this epoch."""
        row = self.rows.get(key.name)
        request = Request(key.name, now, key.holder_id, key.epoch)
        return row is not None and row.expires_at > now and is_holder(row, request)

    def view(self, name: str, now: dt.datetime) -> Lease | None:
        row = self.rows.get(name)
        return row and replace(row, remaining_s=(row.expires_at - now).total_seconds())

    def _answer(self, verb: Verb, request: Request) -> Lease | Refusal:
        row = self.rows.get(request.name)
        rule = decide(row, verb, request)
        self.decided(request.name, rule, row_state(row, request.now), verb)
        if rule is None:
            reason = "held" if verb is Verb.ACQUIRE else refusal_reason(row, request.now)
            return Refusal(reason, self.view(request.name, request.now))
        self.rows[request.name] = rule.then(row, request)
        after = self.view(request.name, request.now)
        assert after is not None, "a rule leaves a row behind"
        return after
