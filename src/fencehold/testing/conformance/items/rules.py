"""Tests each rule of the items' table, allowed and refused, at the instant of expiry and one tick beside it."""

from __future__ import annotations

import enum
from dataclasses import dataclass

import pytest

from fencehold.model.items.rules import RULES, ItemKey, Verb
from fencehold.testing.conformance.items.pair import NEVER_GRANTED, ItemPair, ItemTests
from fencehold.testing.conformance.oracle import check_cases
from fencehold.testing.conformance.suite import LEASE, START, noted

PUT, ACQUIRE, RENEW, BREAK, SAVE, DELETE, NEXT = Verb


class Before(enum.Enum):
    ABSENT = "absent"
    NEVER = "never leased"
    BROKEN = "leased by ada, then broken"
    LEASED = "leased by ada"


class Token(enum.Enum):
    OWN = "of the last lease"
    EARLIER = "of the lease before it"
    LATER = "of no lease yet"
    ANY = "none"


@dataclass(frozen=True)
class Case:
    """One test case of a rule of the table: who calls which verb when, and whether the rule allows it.

    An item is made as `before` says. Then the clock is set `ticks` after the instant at which its lease lapses, and
    `who` calls `verb` with the key of the lease that `token` names. A tick is the smallest time that the store keeps.
    """

    rule: str
    title: str
    before: Before
    verb: Verb
    ticks: int
    allowed: bool
    who: str = "ada"
    token: Token = Token.OWN
    is_other_state: bool = False


MADE, WRITTEN, OWN_WRITTEN = "absent.put.always", "free.put.always", "live.put.is_own"
TAKEN, TAKEN_AGAIN, NEXT_TAKEN = "free.acquire.always", "live.acquire.is_own", "free.next.is_in_state"
KEPT, SAVED, GONE = "live.renew.is_holder", "live.save.is_holder", "live.delete.is_holder"
NOTHING, IDLE, BROKEN = "absent.break.always", "free.break.always", "live.break.is_own_lease"
ABSENT, NEVER, FREED, LEASED = Before
OWN, EARLIER, LATER, ANY = Token

CASES: tuple[Case, ...] = (
    #    rule         title                                before   verb     ticks allowed
    Case(MADE,        "a new one",                         ABSENT,  PUT,     0,    True),
    Case(MADE,        "a new one that another was before", LEASED,  PUT,     -1,   False, "bob"),
    Case(WRITTEN,     "never leased",                      NEVER,   PUT,     0,    True,  "bob"),
    Case(WRITTEN,     "its lease was broken",              FREED,   PUT,     -1,   True,  "bob"),
    Case(WRITTEN,     "one tick before it lapses",         LEASED,  PUT,     -1,   False, "bob"),
    Case(WRITTEN,     "at the instant it lapses",          LEASED,  PUT,     0,    True,  "bob"),
    Case(WRITTEN,     "its own, at the instant it lapses", LEASED,  PUT,     0,    True),
    Case(OWN_WRITTEN, "one tick before it lapses",         LEASED,  PUT,     -1,   True),
    Case(OWN_WRITTEN, "held by another",                   LEASED,  PUT,     -1,   False, "Ada"),
    Case(TAKEN,       "never leased",                      NEVER,   ACQUIRE, 0,    True,  "bob"),
    Case(TAKEN,       "its lease was broken",              FREED,   ACQUIRE, -1,   True,  "bob"),
    Case(TAKEN,       "there is none",                     ABSENT,  ACQUIRE, 0,    False),
    Case(TAKEN,       "one tick before it lapses",         LEASED,  ACQUIRE, -1,   False, "bob"),
    Case(TAKEN,       "at the instant it lapses",          LEASED,  ACQUIRE, 0,    True,  "bob"),
    Case(TAKEN,       "one tick after it lapsed",          LEASED,  ACQUIRE, 1,    True,  "bob"),
    Case(TAKEN,       "its own, at the instant it lapses", LEASED,  ACQUIRE, 0,    True),
    Case(TAKEN_AGAIN, "one tick before it lapses",         LEASED,  ACQUIRE, -1,   True),
    Case(TAKEN_AGAIN, "held by another",                   LEASED,  ACQUIRE, -1,   False, "Ada"),
    Case(KEPT,        "one tick before it lapses",         LEASED,  RENEW,   -1,   True),
    Case(KEPT,        "at the instant it lapses",          LEASED,  RENEW,   0,    False),
    Case(KEPT,        "one tick after it lapsed",          LEASED,  RENEW,   1,    False),
    Case(KEPT,        "another's, by its token",           LEASED,  RENEW,   -1,   False, "bob"),
    Case(KEPT,        "the lease before this one",         LEASED,  RENEW,   -1,   False, token=EARLIER),
    Case(KEPT,        "a token that is not yet",           LEASED,  RENEW,   -1,   False, token=LATER),
    Case(KEPT,        "no token",                          LEASED,  RENEW,   -1,   False, token=ANY),
    Case(KEPT,        "its lease was broken",              FREED,   RENEW,   -1,   False),
    Case(KEPT,        "never leased",                      NEVER,   RENEW,   0,    False, token=ANY),
    Case(KEPT,        "there is none",                     ABSENT,  RENEW,   0,    False),
    Case(NOTHING,     "there is none",                     ABSENT,  BREAK,   0,    True),
    Case(NOTHING,     "there is one, held by another",     LEASED,  BREAK,   -1,   False, "bob", ANY),
    Case(IDLE,        "never leased",                      NEVER,   BREAK,   0,    True,  token=ANY),
    Case(IDLE,        "broken already",                    FREED,   BREAK,   -1,   True),
    Case(IDLE,        "another's, one tick before",        LEASED,  BREAK,   -1,   False, "bob"),
    Case(IDLE,        "another's, when it lapses",         LEASED,  BREAK,   0,    True,  "bob"),
    Case(IDLE,        "its own, when it lapses",           LEASED,  BREAK,   0,    True),
    Case(BROKEN,      "one tick before it lapses",         LEASED,  BREAK,   -1,   True),
    Case(BROKEN,      "whatever lease it has",             LEASED,  BREAK,   -1,   True,  token=ANY),
    Case(BROKEN,      "the lease before this one",         LEASED,  BREAK,   -1,   False, token=EARLIER),
    Case(BROKEN,      "a token that is not yet",           LEASED,  BREAK,   -1,   False, token=LATER),
    Case(SAVED,       "one tick before it lapses",         LEASED,  SAVE,    -1,   True),
    Case(SAVED,       "at the instant it lapses",          LEASED,  SAVE,    0,    False),
    Case(SAVED,       "one tick after it lapsed",          LEASED,  SAVE,    1,    False),
    Case(SAVED,       "another's, by its token",           LEASED,  SAVE,    -1,   False, "bob"),
    Case(SAVED,       "the lease before this one",         LEASED,  SAVE,    -1,   False, token=EARLIER),
    Case(SAVED,       "no token",                          LEASED,  SAVE,    -1,   False, token=ANY),
    Case(SAVED,       "its lease was broken",              FREED,   SAVE,    -1,   False),
    Case(SAVED,       "never leased",                      NEVER,   SAVE,    0,    False, token=ANY),
    Case(SAVED,       "there is none",                     ABSENT,  SAVE,    0,    False),
    Case(GONE,        "one tick before it lapses",         LEASED,  DELETE,  -1,   True),
    Case(GONE,        "at the instant it lapses",          LEASED,  DELETE,  0,    False),
    Case(GONE,        "another's, by its token",           LEASED,  DELETE,  -1,   False, "bob"),
    Case(GONE,        "the lease before this one",         LEASED,  DELETE,  -1,   False, token=EARLIER),
    Case(GONE,        "no token",                          LEASED,  DELETE,  -1,   False, token=ANY),
    Case(GONE,        "its lease was broken",              FREED,   DELETE,  -1,   False),
    Case(GONE,        "never leased",                      NEVER,   DELETE,  0,    False, token=ANY),
    Case(GONE,        "there is none",                     ABSENT,  DELETE,  0,    False),
    Case(NEXT_TAKEN,  "never leased",                      NEVER,   NEXT,    0,    True,  "bob"),
    Case(NEXT_TAKEN,  "its lease was broken",              FREED,   NEXT,    -1,   True),
    Case(NEXT_TAKEN,  "another's, one tick before",        LEASED,  NEXT,    -1,   False, "bob"),
    Case(NEXT_TAKEN,  "its own, one tick before",          LEASED,  NEXT,    -1,   False),
    Case(NEXT_TAKEN,  "another's, when it lapses",         LEASED,  NEXT,    0,    True,  "bob"),
    Case(NEXT_TAKEN,  "its own, when it lapses",           LEASED,  NEXT,    0,    True),
    Case(NEXT_TAKEN,  "it is in another state",            NEVER,   NEXT,    0,    False, is_other_state=True),
)  # fmt: skip


class ItemRules(ItemTests):
    """Tests that the answer of each verb, and the item after it, are those that the rule table requires."""

    @pytest.mark.parametrize("verb", list(Verb), ids=lambda verb: verb.value)
    async def test_rules(self, pair: ItemPair, verb: Verb) -> None:
        for number, case in enumerate(case for case in CASES if case.verb is verb):
            with noted(f"{case.rule}: {case.title}"):
                await self._try(pair, case, f"state {number}")
        assert set(pair.oracle.fired) >= {rule.id for rule in RULES if rule.on is verb}, "a rule never fired"
        await pair.find()

    async def _try(self, pair: ItemPair, case: Case, state: str) -> None:
        item_id = f"{case.rule}, {case.title}"
        key = await arranged(pair, case, item_id, state)
        await pair.set_clock(START + LEASE + case.ticks * pair.tick)
        pair.oracle.last_rule.clear()
        await perform(pair, case.verb, key, "another state" if case.is_other_state else state)
        pair.oracle.check_last(item_id, case.rule, case.allowed)
        if not case.allowed:  # a lapsed lease is not shown; at an instant before its end, it must be shown unchanged
            await pair.set_clock(START)
            await pair.check([item_id], "refused")

    async def test_a_holder_that_lost_its_item_cannot_touch_it_even_if_it_has_leased_it_again(
        self, pair: ItemPair
    ) -> None:
        stale = await pair.leased("deal")
        await pair.set_clock(START + LEASE)
        await pair.take("deal", "bob")
        await pair.set_clock(START + 2 * LEASE)
        held = await pair.take("deal")
        for verb in (RENEW, BREAK, SAVE, DELETE):
            await perform(pair, verb, stale)
            assert pair.oracle.last_rule["deal"] is None
        assert await pair.renew([held]) == ["deal"]

    def test_every_rule_is_allowed_once_and_refused_once(self) -> None:
        check_cases(CASES, RULES)


async def arranged(pair: ItemPair, case: Case, item_id: str, state: str) -> ItemKey:
    """Make the item as the case requires, and return the key that the case uses."""
    await pair.set_clock(START)
    tokens = {Token.OWN: 1, Token.EARLIER: 1, Token.LATER: NEVER_GRANTED, Token.ANY: 0}
    if case.before is not ABSENT:
        await pair.put(item_id, state, {"made": True})
    if case.before in (FREED, LEASED):
        tokens[Token.EARLIER] = (await pair.take(item_id)).token
        held = await pair.take(item_id)
        tokens[Token.OWN] = held.token
        if case.before is FREED:
            await pair.break_leases(held)
    return ItemKey(item_id, case.who, tokens[case.token])


async def perform(pair: ItemPair, verb: Verb, key: ItemKey, state: str = "NEW") -> None:
    match verb:
        case Verb.PUT:
            await pair.put(key.id, f"put, {state}", {"put": "again"}, key.holder_id)
        case Verb.ACQUIRE:
            await pair.acquire(key.id, key.holder_id, 30.0)
        case Verb.RENEW:
            await pair.renew([key], 30.0)
        case Verb.BREAK:
            await pair.break_leases(key)
        case Verb.SAVE:
            await pair.save(key, f"saved, {state}", document={"saved": [1, 2]})
        case Verb.DELETE:
            await pair.delete(key)
        case Verb.NEXT:
            await pair.next(state, holder=key.holder_id, lease_s=30.0)
