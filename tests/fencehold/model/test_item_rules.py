"""The rule table of items itself: complete, without contradiction, and with every change it makes spelled out."""

import datetime as dt
import itertools
from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencehold.model.items import rules as items
from fencehold.model.items.rules import (
    RULES,
    ItemKey,
    Request,
    Row,
    StoredItem,
    Verb,
    decide,
    refusal_reason,
    row_state,
)
from fencehold.ports.items import ItemRow

NOW = dt.datetime(2031, 5, 17, 12, tzinfo=dt.UTC)
TICK = dt.timedelta(microseconds=1)
LEASE = dt.timedelta(seconds=60)


def row(expires_at: dt.datetime | None = NOW + LEASE, **changes: Any) -> StoredItem:
    stored = StoredItem("NEW", NOW - LEASE, "{}", 3, "ada", NOW - TICK, 60.0, expires_at)
    return replace(stored, **changes)


def request(**changes: Any) -> Request:
    return replace(Request(NOW, "ada", 3, 4, 60.0, "NEW", '{"n":1}'), **changes)


def changed(before: StoredItem, after: StoredItem) -> set[str]:
    return {f.name for f in fields(before) if getattr(before, f.name) != getattr(after, f.name)}


def test_the_rules_are_these_and_no_others():
    assert [rule.id for rule in RULES] == [
        "absent.put.always",
        "free.put.always",
        "live.put.is_own",
        "free.acquire.always",
        "live.acquire.is_own",
        "live.renew.is_holder",
        "absent.break.always",
        "free.break.always",
        "live.break.is_own_lease",
        "live.save.is_holder",
        "live.delete.is_holder",
        "free.next.is_in_state",
    ]


def test_no_two_rules_can_apply_to_one_request():
    for one, two in itertools.combinations(RULES, 2):
        assert (one.source, one.on) != (two.source, two.on)


@pytest.mark.parametrize(("expires_at", "state"), [(NOW - TICK, Row.FREE), (NOW, Row.FREE), (NOW + TICK, Row.LIVE)])
def test_the_instant_of_expiry_belongs_to_the_taker(expires_at: dt.datetime, state: Row):
    before = row(expires_at)
    assert row_state(before, NOW) is state
    for verb in (Verb.RENEW, Verb.SAVE, Verb.DELETE):
        assert (decide(before, verb, request()) is None) is (state is Row.FREE)
    for verb in (Verb.ACQUIRE, Verb.NEXT, Verb.PUT):
        assert (decide(before, verb, request(holder_id="bob")) is not None) is (state is Row.FREE)


def test_every_rule_leads_where_it_says():
    befores = {Row.ABSENT: None, Row.LIVE: row(), Row.FREE: row(NOW)}
    for rule in RULES:
        assert row_state(rule.then(befores[rule.source], request()), NOW) is rule.target, rule.id


@pytest.mark.parametrize("verb", [Verb.RENEW, Verb.SAVE, Verb.DELETE, Verb.BREAK])
@pytest.mark.parametrize("wrong", [{"holder_id": "bob"}, {"token": 2}, {"token": 4}, {"holder_id": "Ada"}], ids=str)
def test_holder_and_token_must_both_be_right(verb: Verb, wrong: dict[str, object]):
    assert decide(row(), verb, request()) is not None
    assert decide(row(), verb, request(**wrong)) is None


def test_no_token_breaks_whatever_lease_the_holder_has_and_is_good_for_nothing_else():
    assert decide(row(), Verb.BREAK, request(token=0)) is not None
    assert decide(row(), Verb.BREAK, request(token=0, holder_id="bob")) is None
    for verb in (Verb.RENEW, Verb.SAVE, Verb.DELETE):
        assert decide(row(), verb, request(token=0)) is None


def test_a_live_lease_is_never_next_not_even_for_its_holder():
    assert decide(row(), Verb.NEXT, request()) is None
    assert decide(row(NOW), Verb.NEXT, request(state="SENT")) is None


def test_a_grant_starts_a_lease_under_its_own_token_and_leaves_the_item():
    before = row(NOW)
    after = items.grant(before, request(holder_id="bob"))
    assert (after.token, after.holder_id, after.leased_at, after.expires_at) == (4, "bob", NOW, NOW + LEASE)
    assert changed(before, after) == {"token", "holder_id", "leased_at", "expires_at"}


def test_a_renewal_changes_the_length_and_the_end_of_a_lease_and_nothing_else():
    after = items.extend(row(), request(lease_s=90.0))
    assert changed(row(), after) == {"lease_s", "expires_at"}
    assert after.expires_at == NOW + 1.5 * LEASE


def test_a_break_leaves_the_item_and_the_token():
    after = items.free(row(), request())
    assert changed(row(), after) == {"holder_id", "leased_at", "lease_s", "expires_at"}
    assert (after.holder_id, after.expires_at, after.token) == (None, None, 3)


def test_a_write_changes_what_it_names_and_naming_the_same_state_is_a_transition():
    assert changed(row(), items.write(row(), request(document=None))) == {"state_timestamp"}
    assert changed(row(), items.write(row(), request(state=None))) == {"document"}
    assert items.write(row(), request(state=None, document=None)) == row()


@pytest.mark.parametrize(
    ("before", "reason"), [(None, "absent"), (row(NOW), "lapsed"), (row(), "held_by_another")], ids=str
)
def test_a_refusal_has_a_reason(before: StoredItem | None, reason: str):
    assert refusal_reason(before, NOW) == reason


@given(
    st.lists(st.tuples(st.sampled_from(Verb), st.sampled_from(["ada", "bob"]), st.integers(0, 4), st.integers(0, 70)))
)
def test_a_token_once_passed_never_allows_again(calls: list[tuple[Verb, str, int, int]]):
    now, current, highest = NOW, None, 0
    for verb, holder, token, wait_s in calls:
        now += dt.timedelta(seconds=wait_s)
        asked = Request(now, holder, token, highest + 1, 60.0, "NEW", "{}")
        rule = decide(current, verb, asked)
        if rule is None:
            continue
        if verb in (Verb.RENEW, Verb.SAVE, Verb.DELETE):
            assert token == highest, "whoever may write has the last lease of all"
        current = rule.then(current, asked)
        highest = max(highest, current.token if current else 0)


def test_a_row_has_a_key_and_does_not_print_its_document():
    seen = ItemRow("7", "NEW", NOW, '{"iban":"secret"}', 3, "ada")
    assert seen.key == ItemKey("7", "ada", 3)
    assert "secret" not in repr(seen)
