"""Tests each rule of the outbox's table, allowed and refused, at the deciding instant and one tick beside it.

The deciding instant is the one at which the event is due, or its lease lapses.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass

import pytest

from fencehold.model.outbox.rules import RULES, Status, Verb
from fencehold.ports.events import ClaimKey, Failure
from fencehold.testing.conformance.oracle import check_cases
from fencehold.testing.conformance.outbox.pair import LEASE, EventTests, Pair, ask, event, stray
from fencehold.testing.conformance.suite import START, noted, proves

DELAY_S = 7.5
DELAY = dt.timedelta(seconds=DELAY_S)

PENDING, PROCESSING, COMPLETED, FAILED, DEAD = Status
CLAIM, RENEW, COMPLETE, FAIL, RELEASE, REAP, REDRIVE = Verb


@dataclass(frozen=True)
class Case:
    """One test case of a rule of the table: which verb is called when, and whether the rule allows it.

    An event has the given status. The clock is set `ticks` after the deciding instant, at which the event is due or its
    lease lapses, and `verb` is called. A tick is the smallest time that the store keeps.
    """

    rule: str
    title: str
    status: Status
    verb: Verb
    ticks: int
    allowed: bool
    token: str = "ada"
    max_retries: int = 5
    retry: bool = True


NEW, AGAIN = "PENDING.claim.is_due", "FAILED.claim.is_due"
KEPT, DONE, BACK = "PROCESSING.renew.is_holder", "PROCESSING.complete.is_holder", "PROCESSING.release.is_holder"
RETRY, SPENT = "PROCESSING.fail.may_retry", "PROCESSING.fail.is_spent"
REAPED, BURIED = "PROCESSING.reap.lapsed_with_tries", "PROCESSING.reap.lapsed_and_spent"
REVIVED, HURRIED = "DEAD_LETTER.redrive.always", "FAILED.redrive.always"

CASES: tuple[Case, ...] = (
    #    rule     title                              status      verb      ticks allowed
    Case(NEW,     "one tick before it is due",       PENDING,    CLAIM,    -1,   False),
    Case(NEW,     "at the instant it is due",        PENDING,    CLAIM,    0,    True),
    Case(NEW,     "one tick after it is due",        PENDING,    CLAIM,    1,    True),
    Case(AGAIN,   "one tick before it is due",       FAILED,     CLAIM,    -1,   False),
    Case(AGAIN,   "at the instant it is due",        FAILED,     CLAIM,    0,    True),
    Case(NEW,     "held by another",                 PROCESSING, CLAIM,    -1,   False),
    Case(NEW,     "lapsed, but not reaped yet",      PROCESSING, CLAIM,    1,    False),
    Case(KEPT,    "one tick before it lapses",       PROCESSING, RENEW,    -1,   True),
    Case(KEPT,    "at the instant it lapses",        PROCESSING, RENEW,    0,    False),
    Case(KEPT,    "another token",                   PROCESSING, RENEW,    -1,   False, token="bob"),
    Case(DONE,    "one tick before it lapses",       PROCESSING, COMPLETE, -1,   True),
    Case(DONE,    "at the instant it lapses",        PROCESSING, COMPLETE, 0,    False),
    Case(DONE,    "another token",                   PROCESSING, COMPLETE, -1,   False, token="bob"),
    Case(BACK,    "one tick before it lapses",       PROCESSING, RELEASE,  -1,   True),
    Case(BACK,    "at the instant it lapses",        PROCESSING, RELEASE,  0,    False),
    Case(BACK,    "another token",                   PROCESSING, RELEASE,  -1,   False, token="bob"),
    Case(RETRY,   "one tick before it lapses",       PROCESSING, FAIL,     -1,   True),
    Case(RETRY,   "the last but one try",            PROCESSING, FAIL,     -1,   True,  max_retries=2),
    Case(RETRY,   "at the instant it lapses",        PROCESSING, FAIL,     0,    False),
    Case(RETRY,   "another token",                   PROCESSING, FAIL,     -1,   False, token="bob"),
    Case(SPENT,   "the last try",                    PROCESSING, FAIL,     -1,   True,  max_retries=1),
    Case(SPENT,   "tries left, but not to be used",  PROCESSING, FAIL,     -1,   True,  retry=False),
    Case(SPENT,   "the last try, lapsed",            PROCESSING, FAIL,     0,    False, max_retries=1),
    Case(SPENT,   "the last try, another token",     PROCESSING, FAIL,     -1,   False, max_retries=1, token="bob"),
    Case(REAPED,  "one tick before it lapses",       PROCESSING, REAP,     -1,   False),
    Case(REAPED,  "at the instant it lapses",        PROCESSING, REAP,     0,    True),
    Case(REAPED,  "the last but one try",            PROCESSING, REAP,     0,    True,  max_retries=2),
    Case(BURIED,  "one tick before it lapses",       PROCESSING, REAP,     -1,   False, max_retries=1),
    Case(BURIED,  "at the instant it lapses",        PROCESSING, REAP,     0,    True,  max_retries=1),
    Case(REVIVED, "a dead letter",                   DEAD,       REDRIVE,  0,    True),
    Case(REVIVED, "a completed event",               COMPLETED,  REDRIVE,  0,    False),
    Case(HURRIED, "one that waits for its retry",    FAILED,     REDRIVE,  -1,   True),
    Case(HURRIED, "one that is held",                PROCESSING, REDRIVE,  -1,   False),
)  # fmt: skip


class EventRules(EventTests):
    """Tests that the answer of each verb, and the event's row after it, are those that the rule table requires."""

    @pytest.mark.parametrize("verb", list(Verb), ids=lambda verb: verb.value)
    @proves("RULE-020-001", "RULE-020-003", "RULE-020-021")
    async def test_rules(self, pair: Pair, verb: Verb) -> None:
        for case in (case for case in CASES if case.verb is verb):
            with noted(f"{case.rule}: {case.title}"):
                await self._try(pair, case)
        await pair.check_all()

    async def _try(self, pair: Pair, case: Case) -> None:
        event_id, edge = await arranged(pair, case.status, case.max_retries, f"{case.rule}, {case.title}")
        await pair.set_clock(edge + case.ticks * pair.harness.traits.tick)
        pair.oracle.last_rule.clear()
        await perform(pair, case.verb, pair.key(event_id, case.token), case.retry, f"{case.rule}, {case.title}")
        pair.oracle.check_last(event_id, case.rule, case.allowed)

    async def test_a_verb_that_no_rule_names_changes_nothing(self, pair: Pair) -> None:
        ids = {status: (await arranged(pair, status))[0] for status in Status}
        await pair.set_clock(START)
        for status, event_id in ids.items():
            for verb in Verb:
                if verb in (CLAIM, REAP) or any((rule.source, rule.on) == (status, verb) for rule in RULES):
                    continue
                for token in ("ada", "nobody"):
                    await perform(pair, verb, pair.key(event_id, token))
                    assert pair.oracle.last_rule[event_id] is None
        await pair.check_all()

    async def test_an_event_that_never_was_is_refused_by_every_verb(self, pair: Pair) -> None:
        for verb in (RENEW, COMPLETE, RELEASE, FAIL):
            await perform(pair, verb, stray())
        assert await pair.claim(ask("ada")) == []
        assert await pair.reap() == []

    async def test_five_tries_are_five(self, pair: Pair) -> None:
        [event_id] = await pair.add(event(max_retries=5))
        seen = []
        for attempt in range(1, 6):
            assert await pair.claim(ask(f"try {attempt}")) == [event_id]
            await pair.fail(Failure(pair.key(event_id, f"try {attempt}"), f"error {attempt}", 0.0))
            seen.append(pair.oracle.rows[event_id].stored.status)
        assert seen == [FAILED] * 4 + [DEAD]
        assert await pair.claim(ask("a sixth")) == []

    @proves("RULE-020-021")
    async def test_an_event_that_kills_every_worker_ends_as_a_dead_letter(self, pair: Pair) -> None:
        [event_id] = await pair.add(event(max_retries=3))
        for _ in range(3):
            await pair.claim(ask("doomed"))
            await pair.set_clock(pair.now + LEASE)
            assert await pair.reap() == [event_id]
        assert pair.oracle.rows[event_id].stored.status is DEAD

    @proves("RULE-020-003")
    async def test_a_worker_that_lost_its_event_cannot_finish_it_even_if_it_has_claimed_it_again(
        self, pair: Pair
    ) -> None:
        [event_id] = await pair.add(event())
        await pair.claim(ask("ada, first claim"))
        await pair.set_clock(START + LEASE)
        await pair.reap()
        await pair.claim(ask("ada, second claim"))
        stale = pair.key(event_id, "ada, first claim")
        for verb in (RENEW, COMPLETE, RELEASE, FAIL):
            await perform(pair, verb, stale)
            assert pair.oracle.last_rule[event_id] is None
        assert await pair.change(COMPLETE, [pair.key(event_id, "ada, second claim")]) == [event_id]

    def test_every_rule_is_allowed_once_and_refused_once(self) -> None:
        check_cases(CASES, RULES)


async def arranged(
    pair: Pair, status: Status, max_retries: int = 5, event_type: str = "order.paid"
) -> tuple[int, dt.datetime]:
    """Make an event in this status; if the status is PROCESSING, ada holds it.

    Returns its id, and the instant at which it is due or its lease lapses.
    """
    await pair.set_clock(START)
    waiting = {"not_before": DELAY_S} if status is PENDING else {}
    [event_id] = await pair.add(event(event_type, max_retries=max_retries, **waiting))
    if status is PENDING:
        return event_id, START + DELAY
    assert await pair.claim(ask("ada", event_types=(event_type,))) == [event_id]
    key = pair.key(event_id, "ada")
    if status is COMPLETED:
        await pair.change(COMPLETE, [key])
    elif status in (FAILED, DEAD):
        await pair.fail(Failure(key, "boom", DELAY_S, retry=status is FAILED))
        return event_id, START + DELAY
    return event_id, START + LEASE


async def perform(pair: Pair, verb: Verb, key: ClaimKey, retry: bool = True, event_type: str = "order.paid") -> None:
    match verb:
        case Verb.CLAIM:
            await pair.claim(ask("cy", event_types=(event_type,)))
        case Verb.RENEW | Verb.COMPLETE | Verb.RELEASE:
            await pair.change(verb, [key])
        case Verb.FAIL:
            await pair.fail(Failure(key, "boom: \u00e9\U0001f98a '\"\\", DELAY_S, retry))
        case Verb.REAP:
            await pair.reap()
        case Verb.REDRIVE:
            await pair.redrive([key.id], "a root cause")
