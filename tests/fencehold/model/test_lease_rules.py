"""The rule table itself: complete, without contradiction, and with every change it makes spelled out."""

import dataclasses
import datetime as dt
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencehold.model.election import rules as leases
from fencehold.model.election.rules import RULES, Lease, Request, Row, TermKey, Verb, decide, refusal_reason, row_state

NOW = dt.datetime(2031, 5, 17, 12, tzinfo=dt.UTC)
TICK = dt.timedelta(microseconds=1)
LEASE = dt.timedelta(seconds=30)


def row(expires_at: dt.datetime = NOW + LEASE, **changes: object) -> Lease:
    fields = {"name": "job", "holder_id": "ada", "epoch": 3, "acquired_at": NOW - LEASE, "renewed_at": NOW - TICK}
    return Lease(**{**fields, "expires_at": expires_at, "remaining_s": 0.0, "nonce": "n", **changes})  # type: ignore[arg-type]


def request(**changes: object) -> Request:
    fields = {"name": "job", "now": NOW, "holder_id": "ada", "epoch": 3, "lease_s": 30.0, "nonce": "n"}
    return Request(**{**fields, **changes})  # type: ignore[arg-type]


def test_the_rules_are_these_and_no_others():
    assert [rule.id for rule in RULES] == [
        "absent.acquire.always",
        "lapsed.acquire.always",
        "live.acquire.is_same_request",
        "live.renew.is_holder",
        "live.release.is_holder",
        "live.ask_step_down.is_epoch",
    ]


def test_no_two_rules_can_apply_to_one_request():
    for one, two in itertools.combinations(RULES, 2):
        assert (one.source, one.on) != (two.source, two.on)


@pytest.mark.parametrize(("expires_at", "state"), [(NOW - TICK, Row.LAPSED), (NOW, Row.LAPSED), (NOW + TICK, Row.LIVE)])
def test_the_instant_of_expiry_belongs_to_the_taker(expires_at: dt.datetime, state: Row):
    assert row_state(row(expires_at), NOW) is state
    assert (decide(row(expires_at), Verb.RENEW, request()) is None) is (state is Row.LAPSED)
    assert (decide(row(expires_at), Verb.ACQUIRE, request(nonce="other")) is not None) is (state is Row.LAPSED)


def test_every_rule_leads_where_it_says():
    befores = {Row.ABSENT: None, Row.LIVE: row(), Row.LAPSED: row(NOW)}
    for rule in RULES:
        after = rule.then(befores[rule.source], request())
        assert row_state(after, NOW) is rule.target, rule.id


def test_a_grant_counts_on_and_starts_a_clean_term():
    after = leases.grant(row(NOW, step_down_requested=True), request(holder_id="bob", nonce="m"))
    assert (after.epoch, after.holder_id, after.nonce, after.step_down_requested) == (4, "bob", "m", False)
    assert (after.acquired_at, after.renewed_at, after.expires_at) == (NOW, NOW, NOW + LEASE)
    assert leases.grant(None, request()).epoch == 1


def test_a_renewal_changes_two_times_and_nothing_else():
    before = row(step_down_requested=True)
    after = leases.extend(before, request(lease_s=60.0))
    assert (after.renewed_at, after.expires_at) == (NOW, NOW + 2 * LEASE)
    changed = {name for name in vars(before) if getattr(before, name) != getattr(after, name)}
    assert changed == {"renewed_at", "expires_at"}


def test_a_release_expires_the_row_and_keeps_the_epoch():
    before = row()
    after = leases.expire(before, request())
    changed = {name for name in vars(before) if getattr(before, name) != getattr(after, name)}
    assert changed == {"renewed_at", "expires_at"}
    assert (after.renewed_at, after.expires_at) == (NOW, NOW)


def test_a_lease_that_was_given_back_is_told_from_one_that_ran_out():
    released = dataclasses.replace(leases.expire(row(), request()), remaining_s=0.0)
    expired = dataclasses.replace(row(NOW), remaining_s=0.0)
    assert [one.is_released for one in (row(), released, expired)] == [False, True, False]


@pytest.mark.parametrize(
    ("before", "reason"), [(None, "absent"), (row(NOW), "lapsed"), (row(), "held_by_another")], ids=str
)
def test_a_refusal_has_a_reason(before: Lease | None, reason: str):
    assert refusal_reason(before, NOW) == reason


@pytest.mark.parametrize("verb", [Verb.RENEW, Verb.RELEASE])
@pytest.mark.parametrize("wrong", [{"holder_id": "bob"}, {"epoch": 2}, {"epoch": 4}, {"holder_id": "Ada"}], ids=str)
def test_holder_and_epoch_must_both_be_right(verb: Verb, wrong: dict[str, object]):
    assert decide(row(), verb, request()) is not None
    assert decide(row(), verb, request(**wrong)) is None


@pytest.mark.parametrize("wrong", [{"nonce": "m"}, {"holder_id": "bob"}, {"nonce": ""}], ids=str)
def test_only_the_same_request_of_the_same_holder_is_a_repeat(wrong: dict[str, object]):
    assert decide(row(), Verb.ACQUIRE, request()) is not None
    assert decide(row(), Verb.ACQUIRE, request(**wrong)) is None
    assert decide(row(nonce=""), Verb.ACQUIRE, request(nonce="")) is None


@given(
    st.lists(st.tuples(st.sampled_from(Verb), st.sampled_from(["ada", "bob"]), st.integers(1, 4), st.integers(0, 40)))
)
def test_the_epoch_never_falls_and_rises_only_by_a_grant(calls: list[tuple[Verb, str, int, int]]):
    now, current = NOW, None
    for number, (verb, holder, epoch, wait_s) in enumerate(calls):
        now += dt.timedelta(seconds=wait_s)
        asked = Request("job", now, holder, epoch, 30.0, f"nonce {number}")
        rule = decide(current, verb, asked)
        if rule is None:
            continue
        after = rule.then(current, asked)
        assert after.epoch - (current.epoch if current else 0) == (1 if verb is Verb.ACQUIRE else 0)
        current = after


def test_a_key_says_which_term_of_which_lease():
    assert row().key(12.5) == TermKey("job", "ada", 3, 12.5)
    assert "nonce" not in repr(row()), "a nonce is a proof, and does not belong in a log"
    assert (row(remaining_s=0.001).is_live, row(remaining_s=0.0).is_live) == (True, False)
