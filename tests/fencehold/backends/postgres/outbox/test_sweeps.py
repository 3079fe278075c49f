"""Which of a worker's claims look at all due events again."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fencehold.backends.postgres.outbox.sweeps import EVERY_S, PART, SLOW_S, Sweeps
from fencehold.ports.events import Claim, ClaimAsk, ClaimKey

ASK = ClaimAsk(2, "w/1", 30.0, may_miss=True, suspects_max=1)
FIRST, SECOND = (Claim(number, "", "a", "1") for number in (1, 2))
DONE = [ClaimKey(1, "w/0")]


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def sweeps(clock: Clock) -> Sweeps:
    """One that has just swept, and got as much as it asked for: the events go on."""
    made = Sweeps(clock)
    made.swept(ASK, clock.now_s)
    made.claimed(ASK, [FIRST, SECOND])
    return made


def test_the_first_claim_sweeps(clock: Clock) -> None:
    assert Sweeps(clock).is_due(ASK, DONE)


def test_while_there_are_more_a_claim_goes_on_where_the_last_ended(sweeps: Sweeps) -> None:
    assert not sweeps.is_due(ASK, DONE)
    assert not sweeps.is_due(ASK, [])


def test_a_claim_that_may_miss_nothing_sweeps_always_and_one_in_order_too(sweeps: Sweeps, clock: Clock) -> None:
    sweeps.swept(ASK, clock.now_s - 10.0)
    assert sweeps.is_due(replace(ASK, may_miss=False), DONE)
    assert sweeps.is_due(replace(ASK, in_order=True), DONE)
    assert not sweeps.is_due(ASK, DONE), "it was slow"


def test_once_they_are_used_up_a_claim_that_completes_nothing_sweeps(sweeps: Sweeps) -> None:
    sweeps.claimed(ASK, [FIRST])
    assert sweeps.is_due(ASK, [])
    assert not sweeps.is_due(ASK, DONE), "in one statement with the completion"


def test_each_second_one_claim_sweeps(sweeps: Sweeps, clock: Clock) -> None:
    clock.now_s += EVERY_S
    assert sweeps.is_due(ASK, DONE)
    sweeps.swept(ASK, clock.now_s)
    assert not sweeps.is_due(ASK, DONE)


def test_the_next_suspect_is_looked_for_when_one_is_over(sweeps: Sweeps, clock: Clock) -> None:
    sweeps.claimed(ASK, [replace(FIRST, is_suspect=True), SECOND])
    assert not sweeps.is_due(replace(ASK, suspects_max=0), DONE), "it is still in hand"
    sweeps.swept(replace(ASK, suspects_max=0), clock.now_s)
    assert sweeps.is_due(ASK, DONE)
    sweeps.swept(ASK, clock.now_s)
    assert not sweeps.is_due(ASK, DONE)


def test_a_slow_sweep_is_not_repeated_soon(sweeps: Sweeps, clock: Clock) -> None:
    began_s, took_s = clock.now_s, 2 * SLOW_S
    clock.now_s += took_s
    sweeps.swept(ASK, began_s)
    sweeps.claimed(ASK, [])
    assert not sweeps.is_due(ASK, [])
    clock.now_s = began_s + took_s * PART
    assert sweeps.is_due(ASK, [])
