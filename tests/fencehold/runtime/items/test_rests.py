"""What a processor leaves alone: in pages by time, each with the ids that rest in it."""

import datetime as dt

import pytest

from fencehold.ports.items import EVER, Stretch
from fencehold.runtime.items import rests as item_rests
from fencehold.runtime.items.rests import Rests

START = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


class Clock:
    at_s = 0.0

    def now_s(self) -> float:
        return self.at_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    monkeypatch.setattr(item_rests, "PAGE", 3)
    return Clock()


def at(second: int) -> dt.datetime:
    return START + dt.timedelta(seconds=second)


def resting(clock: Clock, *seconds: int) -> Rests:
    rests = Rests(1.0, clock)  # type: ignore[arg-type]
    for number, second in enumerate(seconds):
        rests.done(f"{number}", at(second), has_moved=False)
    return rests


def pages(rests: Rests) -> list[list[str]]:
    return [rests.ids(stretch) for stretch in rests.stretches()]


def test_up_to_a_page_all_of_time_is_one_stretch(clock: Clock) -> None:
    assert resting(clock, 5, 1, 3).stretches() == [EVER]
    assert resting(clock).stretches() == [EVER]


def test_more_are_cut_into_stretches_that_leave_no_gap(clock: Clock) -> None:
    rests = resting(clock, 6, 5, 4, 3, 2, 1, 0)
    assert rests.stretches() == [Stretch(None, at(3)), Stretch(at(3), at(6)), Stretch(at(6), None)]
    assert pages(rests) == [["6", "5", "4"], ["3", "2", "1"], ["0"]]


def test_those_of_one_instant_are_in_one_page_however_many(clock: Clock) -> None:
    assert pages(resting(clock, 1, 1, 1, 1, 1, 1, 1, 0, 2)) == [["7"], [*"0123456", "8"]]


def test_one_whose_rest_is_over_or_who_moved_is_on_no_page(clock: Clock) -> None:
    rests = resting(clock, 0, 1, 2, 3)
    rests.done("1", at(1), has_moved=True)
    clock.at_s = 0.5
    rests.done("2", at(2), has_moved=False)
    clock.at_s = 1.0
    assert pages(rests) == [["2"]]
    clock.at_s = 1.5
    assert pages(rests) == [[]]


def test_beyond_all_that_it_remembers_the_one_that_began_first_is_forgotten(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(item_rests, "RESTS_MAX", 2)
    assert pages(resting(clock, 0, 1, 2)) == [["1", "2"]]
