"""The rule table as an oracle: what a store must answer, computed from model/election/leases.py alone."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from dataclasses import replace

from fencehold.model.election.leases import (
    Ask,
    Lease,
    Refusal,
    Request,
    Rule,
    TermKey,
    Verb,
    decide,
    is_holder,
    refusal_reason,
    row_state,
)
from fencehold.ports.leases import Answer

REMAINING_S_OFF_MAX = 1e-6  # a difference of two instants, as a float


class Oracle:
    """Rows as the rules require them. `fired` counts rules that applied, `refused` states and verbs without a rule."""

    def __init__(self) -> None:
        self.rows: dict[str, Lease] = {}
        self.fired: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self.last_rule: Rule | None = None

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
        rule = self.last_rule = decide(row, verb, request)
        if rule is None:
            self.refused[f"{row_state(row, request.now).value}.{verb.value}"] += 1
            reason = "held" if verb is Verb.ACQUIRE else refusal_reason(row, request.now)
            return Refusal(reason, self.view(request.name, request.now))
        self.fired[rule.id] += 1
        self.rows[request.name] = rule.then(row, request)
        after = self.view(request.name, request.now)
        assert after is not None, "a rule leaves a row behind"
        return after


def agree(got: Answer | None, expected: Answer | None, what: str) -> None:
    """Fail unless both are the same kind of answer about the same row."""
    match got, expected:
        case Refusal(), Refusal():
            assert got.reason == expected.reason, f"{what}: refused as {got.reason}, the table says {expected.reason}"
            agree(got.current, expected.current, f"{what}, the row shown")
        case Lease(), Lease():
            off_s = abs(got.remaining_s - expected.remaining_s)
            assert off_s <= REMAINING_S_OFF_MAX, f"{what}: {got.remaining_s} s left, not {expected.remaining_s}"
            same = replace(got, remaining_s=expected.remaining_s) == expected
            assert same, f"{what}:\n  the store says {got}\n  the table says {expected}"
        case None, None:
            pass
        case _:
            raise AssertionError(f"{what}:\n  the store says {got}\n  the table says {expected}")
