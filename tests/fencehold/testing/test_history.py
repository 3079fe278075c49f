"""The history checker: each rule is found broken, a clean history is clean, and the file outlives its writers."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencehold.testing.history import (
    Believed,
    Ended,
    Event,
    Granted,
    HistoryWriter,
    Refused,
    Rule,
    Wrote,
    boottime_s,
    check,
    load,
)

CLEAN: list[Event] = [
    Granted("n", "a", 1, at=0.0),
    Believed("n", "a", 1, start=0.0, end=5.0),
    Wrote("n", "a", 1, commit_order=1),
    Ended("n", "a", 1, at=5.0, reason="lapsed"),
    Granted("n", "b", 2, at=5.0),
    Believed("n", "b", 2, start=5.0, end=9.0),
    Wrote("n", "b", 2, commit_order=2),
    Refused("n", "a", 1, at=6.0),
    Wrote("n", "b", 2, commit_order=3),
    Granted("other", "a", 1, at=1.0),
    Believed("other", "a", 1, start=1.0, end=8.0),
]

BROKEN: list[tuple[Rule, list[Event]]] = [
    (Rule.WRITES_IN_ORDER, [Wrote("n", "a", 1, commit_order=4)]),
    (Rule.WRITES_IN_ORDER, [Wrote("n", "a", 1, commit_order=3)]),
    (Rule.ONE_HOLDER_PER_EPOCH, [Wrote("n", "c", 2, commit_order=4)]),
    (Rule.ONE_HOLDER_PER_EPOCH, [Ended("n", "c", 2, at=7.0)]),
    (Rule.GRANTS_INCREASE, [Granted("n", "b", 2, at=7.0)]),
    (Rule.GRANTS_INCREASE, [Granted("n", "a", 1, at=7.0)]),
    (Rule.ONE_VALID_TERM, [Believed("n", "a", 1, start=8.9, end=10.0)]),
    (Rule.ONE_VALID_TERM, [Believed("n", "b", 2, start=6.0, end=7.0)]),
    (Rule.WRITES_ARE_GRANTED, [Wrote("n", "c", 3, commit_order=4)]),
]


def rules_broken(history: list[Event]) -> set[Rule]:
    return {violation.rule for violation in check(history)}


def test_a_clean_history_is_clean() -> None:
    assert check(CLEAN) == []


@pytest.mark.parametrize(("rule", "extra"), BROKEN)
def test_each_broken_rule_is_found_wherever_it_stands_in_the_file(rule: Rule, extra: list[Event]) -> None:
    assert rules_broken(CLEAN + extra) == {rule}
    assert rules_broken(extra + CLEAN) == {rule}


def test_a_violation_names_the_lease_and_shows_both_events() -> None:
    violation = check([*CLEAN, Wrote("n", "a", 1, commit_order=9)])[0]
    assert violation.name == "n"
    assert violation.events == (CLEAN[8], Wrote("n", "a", 1, commit_order=9))
    assert "older epoch" in str(violation)


def test_the_same_grant_recorded_twice_is_one_grant() -> None:
    assert check([Granted("n", "a", 1, at=0.5), Granted("n", "a", 1, at=0.5)]) == []


def test_a_term_may_start_at_the_instant_the_last_one_ended() -> None:
    assert check([Believed("n", "a", 1, 0.0, 5.0), Believed("n", "b", 2, 5.0, 6.0)]) == []


def test_an_interval_that_ends_before_it_starts_is_refused() -> None:
    with pytest.raises(ValueError, match="before it starts"):
        Believed("n", "a", 1, start=2.0, end=1.0)


ticks = st.integers(0, 12).map(float)
intervals = st.lists(
    st.tuples(st.sampled_from("mn"), ticks, ticks).map(lambda drawn: (drawn[0], min(drawn[1:]), max(drawn[1:]))),
    max_size=12,
)


@given(intervals)
def test_the_overlap_check_agrees_with_comparing_every_pair(drawn: list[tuple[str, float, float]]) -> None:
    ordered = sorted(drawn, key=lambda interval: interval[1:])
    beliefs = [Believed(name, str(number), number, start, end) for number, (name, start, end) in enumerate(ordered)]
    overlapped = {
        later.epoch
        for place, later in enumerate(beliefs)
        for earlier in beliefs[:place]
        if earlier.name == later.name and max(earlier.start, later.start) < min(earlier.end, later.end)
    }
    assert {violation.events[1].epoch for violation in check(beliefs)} == overlapped
    assert len(check(reversed(beliefs))) == len(overlapped)


def test_every_kind_of_event_comes_back_from_the_file_as_it_was(tmp_path: Path) -> None:
    with HistoryWriter(tmp_path / "h.jsonl") as writer:
        for event in CLEAN:
            writer.record(event)
    assert load(tmp_path / "h.jsonl") == CLEAN


def test_a_torn_line_is_passed_over_and_the_next_process_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "h.jsonl"
    with HistoryWriter(path) as writer:
        writer.record(CLEAN[0])
    with path.open("ab") as torn:
        torn.write(b'\n{"kind": "wro')
    assert load(path) == CLEAN[:1]
    with HistoryWriter(path) as writer:
        writer.record(CLEAN[1])
    assert load(path) == CLEAN[:2]


@pytest.mark.parametrize("line", ["nonsense", "[1]", '{"kind": "unheard"}', '{"kind": "granted", "name": "n"}', "{]}"])
def test_a_line_that_is_no_event_is_an_error_that_names_it(line: str, tmp_path: Path) -> None:
    path = tmp_path / "h.jsonl"
    path.write_text(f"{json.dumps({'kind': 'ended', 'name': 'n', 'holder_id': 'a', 'epoch': 1, 'at': 1})}\n{line}\n")
    with pytest.raises(ValueError, match="line 2"):
        load(path)


WRITE_FOR_EVER = """
import sys, time
from fencehold.testing.history import HistoryWriter, Wrote
writer, me, number = HistoryWriter(sys.argv[1]), sys.argv[2], 0
ends_s = time.monotonic() + 60  # whatever becomes of the test
while time.monotonic() < ends_s:
    number += 1
    writer.record(Wrote(me * 400, me, 1, number))
"""


def test_lines_of_several_killed_processes_are_never_mixed(tmp_path: Path) -> None:
    path = tmp_path / "h.jsonl"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    writers = [subprocess.Popen([sys.executable, "-c", WRITE_FOR_EVER, str(path), me], env=environment) for me in "abc"]
    give_up_at = time.monotonic() + 30
    while not (path.exists() and all(f'"holder_id":"{me}"' in path.read_text().replace(" ", "") for me in "abc")):
        assert time.monotonic() < give_up_at, "the writers wrote nothing"
    for writer in writers:
        writer.send_signal(signal.SIGKILL)
        writer.wait()
    for me in "abc":
        numbers = [event.commit_order for event in load(path) if isinstance(event, Wrote) and event.holder_id == me]
        assert numbers == list(range(1, len(numbers) + 1))


@pytest.mark.parametrize(("history", "status"), [(CLEAN, 0), (CLEAN + BROKEN[0][1], 1)])
def test_the_command_exits_1_only_if_there_are_violations(history: list[Event], status: int, tmp_path: Path) -> None:
    with HistoryWriter(tmp_path / "h.jsonl") as writer:
        for event in history:
            writer.record(event)
    command = [sys.executable, "-m", "fencehold.testing.history", str(tmp_path / "h.jsonl")]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert (done.returncode, done.stderr) == (status, "")
    assert f"{len(history)} events, {status} violations" in done.stdout


def test_the_command_exits_2_when_there_is_nothing_to_judge(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "fencehold.testing.history", str(tmp_path / "absent")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=environment)
    assert done.returncode == 2
    assert "absent" in done.stderr


def test_the_clock_does_not_go_back() -> None:
    readings = [boottime_s() for _ in range(100)]
    assert readings == sorted(readings)
