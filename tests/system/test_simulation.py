"""Ten thousand bad half-minutes for three processes and a store: nothing breaks, and every planted fault is found."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fencehold.model.election.leases import RULES
from fencehold.runtime.election.held_lease import HeldLease
from fencehold.testing.simulation import FAULTS, main, replay_command, report, simulate, sweep

SEEDS = 10_000
SEEDS_PER_FAULT_MAX = 2_000
PROCESSES = min(2, os.cpu_count() or 1)


@pytest.mark.limit(600)
def test_ten_thousand_schedules_break_no_invariant(capsys: pytest.CaptureFixture[str]) -> None:
    result = sweep(range(SEEDS), processes=PROCESSES)
    if result.failed is not None:
        pytest.fail(report(result.failed), pytrace=False)
    with capsys.disabled():
        print(f"\nsimulation: {result}")
    assert result.seeds == SEEDS
    assert result.rules_fired == {rule.id for rule in RULES}, "a rule that never fired was not tried"
    assert result.refusals > SEEDS / 20, "the fence was hardly ever met"
    assert result.led_s > result.virtual_s / 2, "with this much trouble somebody still leads most of the time"


@pytest.mark.limit(300)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found(fault: str) -> None:
    result = sweep(range(SEEDS_PER_FAULT_MAX), fault)
    assert result.failed is not None, f"{fault} was not found in {SEEDS_PER_FAULT_MAX} seeds"
    assert result.failed.violation


def test_the_page_names_every_fault() -> None:
    page = (Path(__file__).parents[2] / "docs" / "simulation.md").read_text(encoding="utf-8")
    assert [fault for fault in FAULTS if f"| `{fault}` |" not in page] == []


def test_a_planted_fault_is_taken_out_again() -> None:
    before = dict(vars(HeldLease))
    assert simulate(0, "no_local_deadline").violation is not None
    assert dict(vars(HeldLease)) == before
    assert simulate(0).violation is None


def test_the_same_seed_gives_the_same_trace() -> None:
    first, second = simulate(11, trace=True), simulate(11, trace=True)
    assert first.trace == second.trace
    assert len(first.trace) > 20
    assert first.trace != simulate(12, trace=True).trace


def test_the_same_seed_gives_the_same_trace_in_another_process() -> None:
    command = [sys.executable, "-m", "fencehold.testing.simulation", "--seeds", "11", "--trace"]
    environment = {**os.environ, "PYTHONHASHSEED": "12345"}
    answer = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60, check=True)
    assert answer.stdout.splitlines() == [*simulate(11, trace=True).trace, "seed 11: clean"]


def test_tracing_changes_nothing() -> None:
    assert simulate(11).callbacks == simulate(11, trace=True).callbacks


def test_a_failing_seed_prints_its_trace_and_its_replay_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seeds", "0:50", "--fault", "no_local_deadline", "--processes", "1"]) == 1
    text = capsys.readouterr().out
    found = sweep(range(50), "no_local_deadline").failed
    assert found is not None
    assert text.rstrip().endswith(f"replay: {replay_command(found)}")
    assert f"seed {found.seed}: {found.violation}" in text
    assert "REFEREE" in text


def test_the_replay_command_shows_the_same_violation(capsys: pytest.CaptureFixture[str]) -> None:
    found = sweep(range(50), "hint_is_truth").failed
    assert found is not None
    arguments = replay_command(found).split("simulation ", 1)[1].split()
    assert main(arguments) == 1
    assert capsys.readouterr().out.rstrip().endswith(f"seed {found.seed}: {found.violation}")


def test_a_clean_run_says_what_it_did(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seeds", "0:3", "--processes", "1"]) == 0
    assert "3 schedules" in capsys.readouterr().out
