"""Thousands of bad half-minutes for leases, locks, an outbox and items: nothing breaks, every planted fault is found.

A normal run plays some of the schedules, a long one ten thousand of each kind.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from fencehold.testing.simulation import FAULTS, KINDS, Sweep, main, replay_command, report, simulate, sweep
from fencehold.testing.simulation.loop import SimulationLoop, side

SEEDS = {"leases": 1_000, "locks": 600, "outbox": 300, "items": 400}
SEEDS_OF_A_LONG_RUN = 10_000
SEEDS_PER_FAULT_MAX = 2_000
PROCESSES = min(2, os.cpu_count() or 1)
#: What must have happened, per schedule on average: else the schedules would be too tame to mean anything.
TRIED = {
    "leases": {"seconds led": 16, "terms": 2, "writes accepted": 4, "writes refused": 0.1},
    "locks": {"terms": 2, "reconnects": 0.3, "writes accepted": 4, "writes refused": 0.05},
    "outbox": {"claims": 15, "renews": 10, "completes": 5, "fails": 3, "reaps": 3, "releases": 0.1},
    "items": {"acquires": 3, "nexts": 4, "renews": 6, "saves": 3, "deletes": 0.3},
}


def judge(result: Sweep, capsys: pytest.CaptureFixture[str]) -> None:
    if result.failed is not None:
        pytest.fail(report(result.failed), pytrace=False)
    with capsys.disabled():
        print(f"\nsimulation: {result}")
    assert result.rules_fired == KINDS[result.kind].schedule.rules, "a rule that never fired was not tried"
    per_schedule = {what: result.counts[what] / result.seeds for what in TRIED[result.kind]}
    assert [what for what, least in TRIED[result.kind].items() if per_schedule[what] < least] == []


@pytest.mark.limit(300)
@pytest.mark.parametrize("kind", KINDS)
def test_no_schedule_breaks_an_invariant(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    judge(sweep(range(SEEDS[kind]), processes=PROCESSES, kind=kind), capsys)


@pytest.mark.long
@pytest.mark.limit(1800)
@pytest.mark.parametrize("kind", KINDS)
def test_nor_does_the_rest_of_ten_thousand(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    judge(sweep(range(SEEDS[kind], SEEDS_OF_A_LONG_RUN), processes=PROCESSES, kind=kind), capsys)


@pytest.mark.limit(300)
@pytest.mark.parametrize(("kind", "fault"), [(kind, fault) for kind, faults in FAULTS.items() for fault in faults])
def test_a_planted_fault_is_found(kind: str, fault: str) -> None:
    result = sweep(range(SEEDS_PER_FAULT_MAX), fault, kind=kind)
    assert result.failed is not None, f"{fault} was not found in {SEEDS_PER_FAULT_MAX} seeds of {kind}"
    assert result.failed.violation


def test_the_page_names_every_fault_with_the_seeds_it_needed() -> None:
    page = (Path(__file__).parents[4] / "docs" / "simulation.md").read_text(encoding="utf-8")
    rows = {
        row[0].strip("`"): row[2:] for line in page.splitlines() if (row := re.findall(r"[^|]+", line.replace(" ", "")))
    }
    missing = [
        (kind, fault)
        for column, (kind, faults) in enumerate(FAULTS.items())
        for fault in faults
        if fault not in rows or not rows[fault][column].isdecimal()
    ]
    assert missing == []


@pytest.mark.parametrize("kind", KINDS)
def test_a_planted_fault_is_taken_out_again(kind: str) -> None:
    patches = [patch for patches in KINDS[kind].faults.values() for patch in patches]
    before = [vars(owner)[name] for owner, name, _ in patches]
    for fault in FAULTS[kind]:
        simulate(0, fault, kind=kind)
    assert all(vars(owner)[name] is was for (owner, name, _), was in zip(patches, before, strict=True))
    assert simulate(0, kind=kind).violation is None


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_seed_gives_the_same_trace(kind: str) -> None:
    first, second = (simulate(11, trace=True, kind=kind) for _ in range(2))
    assert first.trace == second.trace
    assert len(first.trace) > 20
    assert first.trace != simulate(12, trace=True, kind=kind).trace


def test_the_same_seed_gives_the_same_trace_in_another_process() -> None:
    command = [sys.executable, "-m", "fencehold.testing.simulation", "--seeds", "11", "--trace"]
    environment = {**os.environ, "PYTHONHASHSEED": "12345"}
    answer = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60, check=True)
    expected = [[*simulate(11, trace=True, kind=kind).trace, "seed 11: clean"] for kind in KINDS]
    assert answer.stdout.splitlines() == [line for lines in expected for text in lines for line in text.splitlines()]


@pytest.mark.parametrize("kind", KINDS)
def test_tracing_changes_nothing(kind: str) -> None:
    assert simulate(11, kind=kind).callbacks == simulate(11, trace=True, kind=kind).callbacks


def test_a_failing_seed_prints_its_trace_and_its_replay_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--kind", "items", "--seeds", "0:50", "--fault", "no_local_deadline", "--processes", "1"]) == 1
    text = capsys.readouterr().out
    found = sweep(range(50), "no_local_deadline", kind="items").failed
    assert found is not None
    assert text.rstrip().endswith(f"replay: {replay_command(found)}")
    assert f"items, seed {found.seed}: {found.violation}" in text
    assert "REFEREE" in text


@pytest.mark.parametrize(("kind", "fault"), [("leases", "hint_is_truth"), ("outbox", "reaper_takes_live")])
def test_the_replay_command_shows_the_same_violation(kind: str, fault: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = sweep(range(50), fault, kind=kind).failed
    assert found is not None
    arguments = replay_command(found).split("simulation ", 1)[1].split()
    assert main(arguments) == 1
    assert capsys.readouterr().out.rstrip().endswith(f"seed {found.seed}: {found.violation}")


def test_a_clean_run_says_what_it_did_for_each_kind(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seeds", "0:3", "--processes", "1"]) == 0
    said = capsys.readouterr().out.splitlines()
    assert [line.split(",")[0] for line in said] == [f"{kind}: 3 schedules" for kind in KINDS]


def test_a_fault_without_a_kind_is_planted_wherever_it_is_known(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seeds", "0:30", "--fault", "grace_keeps_leader", "--processes", "1"]) == 1
    assert capsys.readouterr().out.startswith("locks: ")


def test_a_fault_of_another_kind_is_refused_with_those_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--kind", "items", "--fault", "no_fence"])
    assert "break_not_awaited" in capsys.readouterr().err


def test_each_thread_has_a_loop_of_its_own() -> None:
    """A mistake between threads fails here as it does with real ones."""
    world = SimulationLoop(1)
    mine, other = side(world, "mine"), side(world, "other")
    future = mine.create_future()

    async def wait() -> None:
        await future

    task = other.begin(wait())
    world.call_later(1.0, world.stop)
    world.run_forever()
    world.close()
    assert "different loop" in str(task.exception())
