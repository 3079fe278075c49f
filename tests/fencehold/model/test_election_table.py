"""The election's table: complete, deterministic, reachable, and spec 002's row by row."""

import itertools

import pytest

from fencehold.model.election.election import TABLE, Circumstances, Emit, Input, LockState, Row, transition

S, IN, E = LockState, Input, Emit

CIRCUMSTANCES = [Circumstances(*flags) for flags in itertools.product((False, True), repeat=4)]

#: Spec 002, table 3.3, footnotes applied: from, input, circumstances, to, callbacks. Where the two differ, the reason.
GRACE = Circumstances(has_grace=True)
ALONE = Circumstances(auto_reacquire=False)
STEPS = Circumstances(stepping_down=True)
PLAIN = Circumstances()
SPEC = [
    (S.STOPPED, IN.START, PLAIN, S.FOLLOWER, ()),
    (S.FOLLOWER, IN.ACQUIRE_ATTEMPT, PLAIN, S.ACQUIRING, ()),
    (S.FOLLOWER, IN.STOP_REQUESTED, PLAIN, S.STOPPED, (E.STOPPED,)),
    (S.ACQUIRING, IN.ACQUIRE_SUCCEEDED, PLAIN, S.LEADER, (E.ACQUIRED,)),
    (S.ACQUIRING, IN.ACQUIRE_FAILED, PLAIN, S.FOLLOWER, (E.ACQUIRE_FAILED,)),
    (S.ACQUIRING, IN.DB_ERROR, PLAIN, S.FOLLOWER, (E.ERROR,)),  # not on_lost: nothing was held
    (S.ACQUIRING, IN.DB_ERROR, ALONE, S.STOPPED, (E.ERROR, E.STOPPED)),
    (S.ACQUIRING, IN.STOP_REQUESTED, PLAIN, S.STOPPED, (E.STOPPED,)),
    (S.LEADER, IN.HEALTH_OK, PLAIN, S.LEADER, ()),
    (S.LEADER, IN.HEALTH_FAILED, GRACE, S.RECONNECTING, ()),
    (S.LEADER, IN.DB_ERROR, GRACE, S.RECONNECTING, (E.ERROR,)),
    (S.LEADER, IN.HEALTH_FAILED, PLAIN, S.FOLLOWER, (E.LOST,)),
    (S.LEADER, IN.DB_ERROR, PLAIN, S.FOLLOWER, (E.LOST, E.ERROR)),
    (S.LEADER, IN.HEALTH_FAILED, ALONE, S.STOPPED, (E.LOST, E.STOPPED)),
    (S.LEADER, IN.DB_ERROR, ALONE, S.STOPPED, (E.LOST, E.ERROR, E.STOPPED)),
    (S.LEADER, IN.STOP_REQUESTED, PLAIN, S.RELEASING, ()),
    (S.LEADER, IN.RELEASE_REQUESTED, PLAIN, S.RELEASING, ()),
    (S.RECONNECTING, IN.REACQUIRE_SUCCEEDED, GRACE, S.LEADER, ()),
    (S.RECONNECTING, IN.REACQUIRE_FAILED, GRACE, S.FOLLOWER, (E.LOST,)),
    (S.RECONNECTING, IN.GRACE_EXPIRED, GRACE, S.FOLLOWER, (E.LOST,)),
    (S.RECONNECTING, IN.REACQUIRE_FAILED, ALONE, S.STOPPED, (E.LOST, E.STOPPED)),
    (S.RECONNECTING, IN.GRACE_EXPIRED, ALONE, S.STOPPED, (E.LOST, E.STOPPED)),
    (S.RECONNECTING, IN.STOP_REQUESTED, GRACE, S.STOPPED, (E.STOPPED,)),
    (S.RELEASING, IN.RELEASE_SUCCEEDED, PLAIN, S.STOPPED, (E.RELEASED, E.STOPPED)),
    (S.RELEASING, IN.RELEASE_SUCCEEDED, STEPS, S.FOLLOWER, (E.RELEASED,)),
    (S.RELEASING, IN.RELEASE_FAILED, PLAIN, S.STOPPED, (E.ERROR, E.STOPPED)),
    (S.RELEASING, IN.DB_ERROR, PLAIN, S.STOPPED, (E.ERROR, E.STOPPED)),
]

#: What the spec says elsewhere: 4.5 (a strategy gives up) and the settled question on RECONNECTING. And what it does
#: not know: a release that nobody confirmed is a loss, because the server may still hold what was to be released; and
#: a lifecycle that is cut off tells the loss of what it held.
BESIDES = [
    (S.FOLLOWER, IN.GAVE_UP, PLAIN, S.STOPPED, (E.STOPPED,)),
    (S.RECONNECTING, IN.REACQUIRE_SUCCEEDED, Circumstances(new_term=True), S.LEADER, (E.LOST, E.ACQUIRED)),
    (S.RELEASING, IN.RELEASE_UNANSWERED, PLAIN, S.STOPPED, (E.LOST, E.ERROR, E.STOPPED)),
    (S.RELEASING, IN.RELEASE_UNANSWERED, STEPS, S.FOLLOWER, (E.LOST, E.ERROR)),
    (S.FOLLOWER, IN.CUT_OFF, PLAIN, S.STOPPED, (E.STOPPED,)),
    (S.ACQUIRING, IN.CUT_OFF, PLAIN, S.STOPPED, (E.STOPPED,)),
    (S.LEADER, IN.CUT_OFF, PLAIN, S.STOPPED, (E.LOST, E.STOPPED)),
    (S.RECONNECTING, IN.CUT_OFF, GRACE, S.STOPPED, (E.LOST, E.STOPPED)),
    (S.RELEASING, IN.CUT_OFF, STEPS, S.STOPPED, (E.LOST, E.STOPPED)),
]


def applying(state: LockState, on: Input, circumstances: Circumstances) -> list[Row]:
    return [row for row in TABLE if (row.source, row.on) == (state, on) and row.when(circumstances)]


@pytest.mark.parametrize(("source", "on", "circumstances", "target", "emits"), SPEC + BESIDES)
def test_the_row_of_the_spec_is_in_the_table(
    source: LockState, on: Input, circumstances: Circumstances, target: LockState, emits: tuple[Emit, ...]
) -> None:
    row = transition(source, on, circumstances)
    assert row is not None
    assert (row.target, row.emits) == (target, emits)


def test_the_table_has_no_row_that_the_spec_does_not_ask_for() -> None:
    asked = {transition(source, on, circumstances) for source, on, circumstances, _, _ in SPEC + BESIDES}
    assert set(TABLE) - asked == set()


@pytest.mark.parametrize("state", LockState)
@pytest.mark.parametrize("on", Input)
def test_at_most_one_row_applies_whatever_the_circumstances(state: LockState, on: Input) -> None:
    assert all(len(applying(state, on, circumstances)) <= 1 for circumstances in CIRCUMSTANCES)


@pytest.mark.parametrize("state", LockState)
@pytest.mark.parametrize("on", Input)
def test_an_input_has_a_meaning_in_a_state_under_all_circumstances_or_under_none(state: LockState, on: Input) -> None:
    counts = {len(applying(state, on, circumstances)) for circumstances in CIRCUMSTANCES}
    assert len(counts) == 1


def test_every_row_id_is_its_own() -> None:
    assert len({row.id for row in TABLE}) == len(TABLE)


def test_every_state_can_be_reached_and_left_again() -> None:
    reached = {S.STOPPED}
    while found := {row.target for row in TABLE if row.source in reached} - reached:
        reached |= found
    assert reached == set(LockState)
    assert {row.source for row in TABLE} == set(LockState)


@pytest.mark.fault("shutdown", "leader", "any")
def test_every_state_but_stopped_can_be_stopped() -> None:
    for state in set(LockState) - {S.STOPPED, S.RELEASING}:
        assert transition(state, IN.STOP_REQUESTED, PLAIN) is not None


def test_every_state_but_stopped_can_be_cut_off() -> None:
    for state in set(LockState) - {S.STOPPED}:
        assert transition(state, IN.CUT_OFF, PLAIN) is not None


def test_whoever_stops_says_so_last() -> None:
    stopping = [row for row in TABLE if row.target is S.STOPPED]
    assert stopping
    assert all(row.emits[-1] is E.STOPPED for row in stopping)
    assert all(E.STOPPED not in row.emits for row in TABLE if row.target is not S.STOPPED)


def test_leadership_is_announced_exactly_when_it_begins() -> None:
    for row in TABLE:
        begins = row.target is S.LEADER and row.source is not S.LEADER
        silently_regained = row.source is S.RECONNECTING and E.ACQUIRED not in row.emits
        assert (E.ACQUIRED in row.emits) == (begins and not silently_regained)


def test_loss_is_announced_only_by_a_leader_or_in_its_grace_period() -> None:
    assert {row.source for row in TABLE if E.LOST in row.emits} == {S.LEADER, S.RECONNECTING, S.RELEASING}
