"""How far an epoch jumps, for every pair of places; and that promotions in turn never meet."""

from __future__ import annotations

import itertools

import pytest

from fencehold.model.election.places import EPOCH_JUMP, RULES, UNKNOWN, Place, decide, next_epoch, recorded

TIMELINES = (None, 1, 2, 3, 9)
SYSTEMS = (None, 7, 8)
PLACES = [Place(timeline, system) for timeline, system in itertools.product(TIMELINES, SYSTEMS)]
PAIRS = list(itertools.product(PLACES, PLACES))
MILLION = 1_000_000


def lift(last: Place, now: Place) -> int:
    """The same in other words than the model's."""
    if last.timeline is None or now.timeline is None:
        return 0
    is_other_system = last.system is not None and now.system is not None and last.system != now.system
    if last.timeline == now.timeline and not is_other_system:
        return 0
    return MILLION * max(1, now.timeline - last.timeline)


@pytest.mark.parametrize("epoch", [1, 2, 41, 3 * MILLION + 5])
def test_a_lease_counts_by_one_where_it_was_granted_and_jumps_elsewhere(epoch: int) -> None:
    for last, now in PAIRS:
        assert next_epoch(epoch, last, now) == epoch + (lift(last, now) or 1), (last, now)


def test_a_name_without_a_row_starts_at_one_where_the_table_was_made_and_above_elsewhere() -> None:
    for origin, now in PAIRS:
        assert next_epoch(None, origin, now) == 1 + lift(origin, now), (origin, now)


def test_each_pair_of_places_has_one_rule_and_each_rule_its_pairs() -> None:
    assert EPOCH_JUMP == MILLION
    assert {decide(last, now).id for last, now in PAIRS} == {rule.id for rule in RULES}
    assert [rule.id for rule in RULES] == ["place.is_unknown", "place.is_same", "place.is_ahead", "place.is_elsewhere"]


def test_a_place_that_cannot_be_read_leaves_what_is_known_of_the_last_one() -> None:
    assert recorded(Place(3, 7), UNKNOWN) == Place(3, 7)
    assert recorded(Place(3, 7), Place(None, 8)) == Place(3, 7)
    assert recorded(Place(3, 7), Place(4, None)) == Place(4, 7)
    assert recorded(UNKNOWN, Place(4, 8)) == Place(4, 8)


@pytest.mark.parametrize("first", [None, 1, 5])
@pytest.mark.parametrize("lost", [1, 1000, MILLION - 1])
def test_promotions_in_turn_from_one_row_never_meet(first: int | None, lost: int) -> None:
    """Each primary grants `lost` epochs that none of the others sees."""
    granted: set[int] = set()
    for timeline in range(1, 8):
        epoch, last = first, Place(1, 7)
        begin = next_epoch(epoch, last, Place(timeline, 7))
        mine = {begin, begin + lost - 1}  # the first and the last one: between them they count by one
        assert not granted or min(mine) > max(granted)
        granted |= mine
