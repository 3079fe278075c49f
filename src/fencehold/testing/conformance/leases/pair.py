"""Clients of a store of leases, side by side with an oracle that computes the required answers from the rule table."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace

from fencehold.model.election.rules import (
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
from fencehold.ports.backend import Backend
from fencehold.ports.leases import Answer
from fencehold.testing.conformance.oracle import ClientsAndOracle, RuleOracle, agree
from fencehold.testing.conformance.suite import START
from fencehold.testing.harness import CALL_LIMIT_S, Harness


class Oracle(RuleOracle):
    """Computes from the rule table in model/election/rules.py alone which leases a store must have, and its answers."""

    table = "leases"
    rows: dict[str, Lease]

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


class LeasePair(ClientsAndOracle[Backend, Oracle]):
    """The leases in the store and in the oracle: every call goes to both, and a difference fails.

    The oracle computes from the rule table what the store must answer.
    """

    @classmethod
    async def of(cls, harness: Harness, clients: int = 1) -> LeasePair:
        await harness.set_clock(START)
        return cls(harness, [await harness.client() for _ in range(clients)], Oracle)

    async def acquire(self, ask: Ask) -> Answer:
        got = await self.client.leases.acquire(ask, CALL_LIMIT_S)
        agree(got, self.oracle.acquire(ask, self.now), f"acquire {ask}")
        return got

    async def use(self, verb: Verb, *keys: TermKey) -> None:
        """Call the verb (renew, release or ask to step down) with these keys, and compare the answers.

        At most one key per name may be given.
        """
        leases = self.client.leases
        match verb:
            case Verb.RENEW:
                got = await leases.renew(keys, CALL_LIMIT_S)
            case Verb.RELEASE:
                got = await leases.release(keys, CALL_LIMIT_S)
            case _:
                got = [await leases.ask_step_down(key.name, key.epoch, CALL_LIMIT_S) for key in keys]
        for key, answer in zip(keys, got, strict=True):
            agree(answer, self.oracle.change(verb, key, self.now), f"{verb.value} {key}")

    async def check(self, *names: str) -> None:
        """Check that the store has each of these leases just as the oracle has it, or lacks it as the oracle does."""
        rows = await self.client.leases.read(names, CALL_LIMIT_S)
        for name in names:
            agree(rows.get(name), self.oracle.view(name, self.now), f"the row of {name}")
