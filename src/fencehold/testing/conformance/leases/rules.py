"""Tests each rule of the leases' table, allowed and refused, at the instant of expiry and one tick beside it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import pytest

from fencehold.model.election.rules import RULES, Ask, TermKey, Verb
from fencehold.testing.conformance.leases.pair import LeasePair
from fencehold.testing.conformance.oracle import check_cases
from fencehold.testing.conformance.suite import LEASE, LEASE_S, START, LeaseTests, Supply
from fencehold.testing.harness import CALL_LIMIT_S

NAME = "nightly"
FIRST = "first nonce"
OTHER = "other nonce"


@dataclass(frozen=True)
class Case:
    """One test case of a rule of the table: who calls which verb when, and whether the rule allows it.

    Ada has acquired the lease with epoch 1, unless `ticks` is None. The clock is set `ticks` after its expiry, and
    `holder` calls `verb`. A tick is the smallest time that the store keeps.
    """

    rule: str
    title: str
    ticks: int | None
    verb: Verb
    allowed: bool
    holder: str = "ada"
    epoch: int = 1
    nonce: str = OTHER
    first_nonce: str = FIRST

    @property
    def id(self) -> str:
        return f"{self.rule}: {self.title}"


ACQUIRE, RENEW, RELEASE, ASK = Verb.ACQUIRE, Verb.RENEW, Verb.RELEASE, Verb.ASK_STEP_DOWN
NEW, LAPSED, SAME = "absent.acquire.always", "lapsed.acquire.always", "live.acquire.is_same_request"
KEPT, GIVEN_BACK, ASKED = "live.renew.is_holder", "live.release.is_holder", "live.ask_step_down.is_epoch"
NO_TICKS_YET = -int(LEASE_S * 1000)  # stands for the instant of the grant, whatever the tick

CASES: tuple[Case, ...] = (
    #    rule        title                             ticks  verb     allowed
    Case(NEW,        "a name nobody has asked for",    None, ACQUIRE, True,  holder="bob"),
    Case(NEW,        "a name that is held",            NO_TICKS_YET, ACQUIRE, False, holder="bob"),
    Case(LAPSED,     "one tick before expiry",         -1,   ACQUIRE, False, holder="bob"),
    Case(LAPSED,     "at the instant of expiry",       0,    ACQUIRE, True,  holder="bob"),
    Case(LAPSED,     "one tick after expiry",          1,    ACQUIRE, True,  holder="bob"),
    Case(LAPSED,     "its own holder, one tick before", -1,  ACQUIRE, False),
    Case(LAPSED,     "its own holder, at expiry",      0,    ACQUIRE, True),
    Case(LAPSED,     "the same request, at expiry",    0,    ACQUIRE, True,  nonce=FIRST),
    Case(SAME,       "one tick before expiry",         -1,   ACQUIRE, True,  nonce=FIRST),
    Case(SAME,       "another request of the holder",  -1,   ACQUIRE, False),
    Case(SAME,       "another holder's equal nonce",   -1,   ACQUIRE, False, holder="bob", nonce=FIRST),
    Case(SAME,       "no nonce is no proof",           -1,   ACQUIRE, False, nonce="", first_nonce=""),
    Case(KEPT,       "one tick before expiry",         -1,   RENEW,   True),
    Case(KEPT,       "at the instant of expiry",       0,    RENEW,   False),
    Case(KEPT,       "one tick after expiry",          1,    RENEW,   False),
    Case(KEPT,       "another holder",                 -1,   RENEW,   False, holder="bob"),
    Case(KEPT,       "a later epoch",                  -1,   RENEW,   False, epoch=2),
    Case(KEPT,       "an earlier epoch",               -1,   RENEW,   False, epoch=0),
    Case(KEPT,       "another holder, lapsed",         0,    RENEW,   False, holder="bob"),
    Case(KEPT,       "an unknown name",                None, RENEW,   False),
    Case(GIVEN_BACK, "one tick before expiry",         -1,   RELEASE, True),
    Case(GIVEN_BACK, "at the instant of expiry",       0,    RELEASE, False),
    Case(GIVEN_BACK, "another holder",                 -1,   RELEASE, False, holder="bob"),
    Case(GIVEN_BACK, "another epoch",                  -1,   RELEASE, False, epoch=2),
    Case(GIVEN_BACK, "another epoch, lapsed",          0,    RELEASE, False, epoch=2),
    Case(GIVEN_BACK, "an unknown name",                None, RELEASE, False),
    Case(ASKED,      "one tick before expiry",         -1,   ASK,     True),
    Case(ASKED,      "at the instant of expiry",       0,    ASK,     False),
    Case(ASKED,      "another epoch",                  -1,   ASK,     False, epoch=2),
    Case(ASKED,      "another epoch, lapsed",          0,    ASK,     False, epoch=2),
    Case(ASKED,      "an unknown name",                None, ASK,     False),
)  # fmt: skip


class Rules(LeaseTests):
    """Tests that the answer of each verb, and the store's row after it, are those that the rule table requires."""

    supplies: ClassVar[Mapping[str, Supply]] = {"pair": LeasePair.of}

    @pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
    async def test_rule(self, pair: LeasePair, case: Case) -> None:
        if case.ticks is not None:
            first = Ask(NAME, "ada", LEASE_S, case.first_nonce)
            pair.oracle.acquire(first, START)
            await pair.client.leases.acquire(first, CALL_LIMIT_S)  # not compared: another case does that
            if case.ticks != NO_TICKS_YET:
                await pair.set_clock(START + LEASE + case.ticks * pair.harness.traits.tick)
        if case.verb is ACQUIRE:
            await pair.acquire(Ask(NAME, case.holder, LEASE_S, case.nonce))
        else:
            await pair.use(case.verb, TermKey(NAME, case.holder, case.epoch, LEASE_S))
        pair.oracle.check_last(NAME, case.rule, case.allowed)
        await pair.check(NAME)

    def test_every_rule_is_allowed_once_and_refused_once(self) -> None:
        check_cases(CASES, RULES)
