"""The invariants of `verify`, each on a planted history that holds and on one that breaks it."""

import dataclasses

import pytest

from fencehold.testing.evidence import (
    EventChange,
    Evidence,
    FencedWrite,
    ItemChange,
    LeaseChange,
    StaleTry,
    ToldWrite,
    Verb,
)
from fencehold.testing.history import Believed, Granted
from fencehold.testing.invariants import INVARIANTS, Finding, judge


def found(evidence: Evidence, name: str) -> Finding:
    return next(finding for finding in judge(evidence) if finding.invariant.name == name)


def grant(epoch: int, holder: str, was: tuple[int, str] | None = None, live: bool = False) -> LeaseChange:
    was_epoch, was_holder = was or (None, None)
    return LeaseChange("job", was_holder, was_epoch, live, holder, epoch)


def stale(verb: Verb, accepted: bool) -> StaleTry:
    return StaleTry(verb, "job", "a", "epoch 1", "epoch 2 of b had been granted", accepted)


def write(order: int, epoch: int, seen: int | None) -> FencedWrite:
    return FencedWrite("job", order, "a", epoch, seen, f"w{order}")


def event(was: str, now: str | None, was_token: str | None, token: str | None, **more: bool) -> EventChange:
    return EventChange("e1", was, was_token, more.get("live", False), now, token, more.get("counted", False))


def item(was: tuple[str | None, int], now: tuple[str | None, int], live: bool = False) -> ItemChange:
    return ItemChange("i1", *was, live, *now, is_save=False, written_token=None)


def saved(token: int, written: int) -> ItemChange:
    return ItemChange("i1", "a", token, True, "a", token, is_save=True, written_token=written)


CLAIM = event("PENDING", "PROCESSING", None, "t1")
DONE = event("PROCESSING", "COMPLETED", "t1", "t1", live=True)
TERMS = [Believed("job", "a", 1, 0.0, 1.0), Believed("job", "b", 2, 1.5, 2.0)]
OVERLAP = [Believed("job", "a", 1, 0.0, 1.6), Believed("job", "b", 2, 1.5, 2.0)]

TOLD: list[tuple[str, str, int, bool | None]] = [
    ("w1", "job", 1, True),
    ("w2", "job", 1, False),
    ("w3", "job", 1, None),
]

HOLD: dict[str, Evidence] = {
    "one-leader-per-epoch": Evidence(lease_changes=[grant(1, "a"), grant(2, "b", (1, "a"))]),
    "epochs-only-rise": Evidence(lease_changes=[grant(1, "a"), grant(2, "b", (1, "a"))]),
    "no-takeover-of-a-live-lease": Evidence(lease_changes=[grant(1, "a"), grant(2, "b", (1, "a"))]),
    "one-valid-leader": Evidence(beliefs=TERMS),
    "only-the-holder-renews": Evidence(stale_tries=[stale(Verb.RENEW, False), stale(Verb.RELEASE, False)]),
    "no-stale-fenced-write": Evidence(stale_tries=[stale(Verb.WRITE, False)], writes=[write(1, 1, 1), write(2, 2, 2)]),
    "fenced-counter-exact": Evidence(
        writes=[write(1, 1, 1)], counters={"job": 1},
        told_writes=[ToldWrite(*told) for told in TOLD],
    ),
    "no-event-lost": Evidence(events_added=["e1"], events_there={"e1": "COMPLETED"}),
    "no-event-completed-twice": Evidence(event_changes=[CLAIM, DONE]),
    "one-claim-per-event": Evidence(
        event_changes=[
            CLAIM, event("PROCESSING", "PENDING", "t1", None, counted=True), event("PENDING", "PROCESSING", None, "t2"),
            event("PROCESSING", "PENDING", "t2", None, live=True), event("PENDING", "PROCESSING", None, "t3"),
        ]
    ),
    "no-stale-completion": Evidence(stale_tries=[stale(Verb.COMPLETE, False)]),
    "one-holder-per-item": Evidence(item_changes=[item((None, 0), ("a", 1)), item(("a", 1), ("b", 2))]),
    "item-tokens-only-rise": Evidence(item_changes=[item((None, 0), ("a", 1)), item(("a", 1), ("b", 2))]),
    "no-stale-item-save": Evidence(stale_tries=[stale(Verb.SAVE, False)], item_changes=[saved(2, 2)]),
    "one-advisory-lock-holder": Evidence(lock_beliefs=TERMS),
}  # fmt: skip

BREAK: list[tuple[str, Evidence]] = [
    ("one-leader-per-epoch", Evidence(lease_changes=[grant(1, "a")], grants=[Granted("job", "b", 1, 5.0)])),
    ("epochs-only-rise", Evidence(lease_changes=[grant(2, "a"), grant(1, "b")])),
    ("epochs-only-rise", Evidence(grants=[Granted("job", "a", 4, 1.0), Granted("job", "b", 4, 2.0)])),
    ("no-takeover-of-a-live-lease", Evidence(lease_changes=[grant(1, "a"), grant(2, "b", (1, "a"), live=True)])),
    ("one-valid-leader", Evidence(beliefs=OVERLAP)),
    ("only-the-holder-renews", Evidence(stale_tries=[stale(Verb.RENEW, True)])),
    ("only-the-holder-renews", Evidence(stale_tries=[stale(Verb.RELEASE, True)])),
    ("only-the-holder-renews", Evidence(lease_changes=[grant(1, "a", (1, "a"), live=False)])),
    ("no-stale-fenced-write", Evidence(stale_tries=[stale(Verb.WRITE, True)])),
    ("no-stale-fenced-write", Evidence(writes=[write(1, 1, 2)])),
    ("no-stale-fenced-write", Evidence(writes=[write(1, 2, 2), write(2, 1, None)])),
    ("fenced-counter-exact", Evidence(writes=[write(1, 1, 1)], counters={"job": 2})),
    ("fenced-counter-exact", Evidence(told_writes=[ToldWrite("w1", "job", 1, True)])),
    ("fenced-counter-exact", Evidence(writes=[write(1, 1, 1)], told_writes=[ToldWrite("w1", "job", 1, False)])),
    ("no-event-lost", Evidence(events_added=["e1"])),
    ("no-event-lost", Evidence(events_added=["e1"], events_there={"e1": "DEAD_LETTER"})),
    ("no-event-completed-twice", Evidence(event_changes=[CLAIM, DONE, event("COMPLETED", "COMPLETED", "t1", "t2")])),
    ("no-event-completed-twice", Evidence(event_changes=[CLAIM, DONE, event("COMPLETED", "PENDING", "t1", None)])),
    ("one-claim-per-event", Evidence(event_changes=[CLAIM, event("PROCESSING", "PROCESSING", "t1", "t2")])),
    (
        "one-claim-per-event",
        Evidence(event_changes=[CLAIM, event("PROCESSING", "PENDING", "t1", None, live=True, counted=True)]),
    ),
    ("one-claim-per-event", Evidence(event_changes=[CLAIM, event("PROCESSING", "FAILED", "t1", None), CLAIM])),
    ("no-stale-completion", Evidence(stale_tries=[stale(Verb.COMPLETE, True)])),
    ("one-holder-per-item", Evidence(item_changes=[item((None, 0), ("a", 1)), item(("a", 1), ("b", 2), live=True)])),
    ("item-tokens-only-rise", Evidence(item_changes=[item((None, 0), ("a", 2)), item(("a", 2), ("b", 1))])),
    ("item-tokens-only-rise", Evidence(item_changes=[item((None, 0), ("a", 1)), item((None, 1), ("b", 1))])),
    ("no-stale-item-save", Evidence(stale_tries=[stale(Verb.SAVE, True)])),
    ("no-stale-item-save", Evidence(item_changes=[saved(2, 1)])),
    ("one-advisory-lock-holder", Evidence(lock_beliefs=OVERLAP)),
]


@pytest.mark.parametrize("name", HOLD)
def test_a_history_that_holds_is_held_and_counted(name: str) -> None:
    finding = found(HOLD[name], name)
    assert finding.held is True, finding.first
    assert finding.checked > 0
    assert finding.first is None


@pytest.mark.parametrize(("name", "evidence"), BREAK, ids=[f"{name}-{n}" for n, (name, _) in enumerate(BREAK)])
def test_a_history_that_breaks_it_is_found_with_a_counter_example(name: str, evidence: Evidence) -> None:
    finding = found(evidence, name)
    assert finding.held is False
    assert finding.broken
    assert finding.first


def test_every_invariant_has_a_history_that_holds_and_one_that_breaks_it() -> None:
    names = {invariant.name for invariant in INVARIANTS}
    assert set(HOLD) == names
    assert {name for name, _ in BREAK} == names


def test_what_was_never_put_to_the_test_is_neither_held_nor_broken() -> None:
    findings = judge(Evidence())
    assert {(finding.held, finding.checked, finding.state) for finding in findings} == {(None, 0, "not checked")}


def test_a_lease_that_a_lock_seizes_may_be_taken_while_it_is_live() -> None:
    evidence = Evidence(lease_changes=[grant(1, "a"), grant(2, "b", (1, "a"), live=True)], seized=frozenset({"job"}))
    assert found(evidence, "no-takeover-of-a-live-lease").held is None


@pytest.mark.parametrize("name", HOLD)
def test_a_history_that_holds_breaks_nothing_else(name: str) -> None:
    assert [one.invariant.name for one in judge(HOLD[name]) if one.held is False] == []


def test_a_holder_may_lease_its_own_item_again() -> None:
    again = dataclasses.replace(item(("a", 1), ("a", 2)), was_live=True)
    assert found(Evidence(item_changes=[again]), "one-holder-per-item").held is True
