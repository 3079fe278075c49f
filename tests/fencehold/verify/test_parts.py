"""The parts of `verify` by themselves: hooks, standstill, the report's page, and when a run may pass."""

import asyncio
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from unittest.mock import AsyncMock, Mock

import psutil
import pytest

from fencehold.testing.evidence import Evidence, StaleTry, Verb
from fencehold.testing.history import Believed
from fencehold.testing.invariants import Finding, judge
from fencehold.verify import leading
from fencehold.verify.contender_processes import stands_still
from fencehold.verify.hooks import OUTPUT_BYTES_MAX, HookRun, passwords, run_hook
from fencehold.verify.journal import Fault, Journal, Said
from fencehold.verify.plan import FAULTS, Plan
from fencehold.verify.report import page
from fencehold.verify.verdict import Verdict, beliefs, findings, lock_beliefs
from tests.servers.process import is_dead

NASTY = '<script>alert("&")</script>'


def verdict(found: list[Finding], journal: Journal | None = None, **more: object) -> Verdict:
    journal = journal or Journal(began_s=0.0)
    given = {"beliefs": [], "lock_beliefs": [], "hooks": [], "not_tested": {}, **more}
    return Verdict(Plan("sqlite:///a.db"), found, journal=journal, took_s=10.0, **given)  # type: ignore[arg-type]


def held(but: str = "") -> list[Finding]:
    return [Finding(one.invariant, 0 if one.invariant.name == but else 1) for one in judge(Evidence())]


def until(found: Callable[[], bool]) -> None:
    limit_s = time.monotonic() + 20
    while not found():
        assert time.monotonic() < limit_s
        time.sleep(0.01)


# Hooks


async def test_a_hook_is_told_by_its_exit_code_and_output() -> None:
    journal = Journal()
    ran = await run_hook("pause-hook", "echo said; echo wrong >&2; exit 4", 20, journal)
    assert (ran.exit_code, ran.output) == (4, "said\nwrong\n")
    assert journal.faults[0].detail.endswith("exit code 4")


async def test_a_hook_that_takes_too_long_is_killed_with_all_it_started() -> None:
    ran = await asyncio.wait_for(run_hook("failover-hook", "sleep 60 & echo $!; sleep 60", 1.0, Journal()), 20)
    assert ran.exit_code is None
    await asyncio.to_thread(
        until, lambda: not psutil.pid_exists(pid := int(ran.output)) or is_dead(psutil.Process(pid))
    )


HOOK_PROGRAM = """
import asyncio
from fencehold.verify.hooks import run_hook
from fencehold.verify.journal import Journal
asyncio.run(run_hook("failover-hook", "sleep 60 & sleep 60", 60, Journal()))
"""


def test_a_hook_dies_with_a_verify_that_is_killed() -> None:
    with subprocess.Popen([sys.executable, "-c", HOOK_PROGRAM]) as child:
        parent = psutil.Process(child.pid)
        until(lambda: [one.name() for one in parent.children(recursive=True)].count("sleep") == 2)
        hook = parent.children(recursive=True)
        child.kill()
    assert psutil.wait_procs(hook, timeout=20)[1] == []


async def test_of_a_hook_that_says_much_the_beginning_is_kept() -> None:
    ran = await run_hook("pause-hook", "yes | head -c 1000000", 20, Journal())
    assert ran.exit_code == 0
    assert len(ran.output) == OUTPUT_BYTES_MAX


# Standing still


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="no /proc")
def test_a_process_stands_still_only_when_all_its_threads_do() -> None:
    program = "import threading, time; threading.Thread(target=time.sleep, args=(60,)).start(); print(1, flush=True)"
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        assert not stands_still(child.pid)
        child.send_signal(signal.SIGSTOP)
        until(lambda: stands_still(child.pid))
        child.kill()
    assert not stands_still(child.pid)


# When a run may pass


def test_a_run_in_which_everything_was_tested_and_held_passes() -> None:
    assert verdict(held()).word == "passed"


def test_a_run_that_never_tested_something_does_not_pass() -> None:
    found = verdict(held(but="no-stale-fenced-write"))
    assert (found.passed, found.word) == (False, "inconclusive")


@pytest.mark.parametrize("exit_code", [7, None])
def test_a_run_whose_hook_failed_does_not_pass(exit_code: int | None) -> None:
    hook = HookRun("failover-hook", "patronictl switchover", 1.0, 2.0, exit_code, "")
    found = verdict(held(), hooks=[hook])
    assert (found.passed, found.word) == (False, "inconclusive")
    assert verdict(held(), hooks=[replace(hook, exit_code=0)]).passed


async def test_what_a_hook_prints_of_the_runs_own_password_is_hidden() -> None:
    secrets = passwords("postgresql://me:p%40ss@db/x")
    ran = await run_hook("pause-hook", "echo 'p@ss p%40ss'", 20, Journal(), secrets)
    assert ran.output == "*** ***\n"


def test_advisory_locks_are_tested_where_there_are_any() -> None:
    assert not verdict(held(but="one-advisory-lock-holder")).passed


@pytest.mark.parametrize("has_locks", [False, True])
def test_where_there_are_no_advisory_locks_nothing_is_said_of_them(has_locks: bool) -> None:
    names = {finding.invariant.name for finding in findings(Evidence(), has_locks)}
    assert ("one-advisory-lock-holder" in names) is has_locks


def test_one_broken_invariant_fails_a_run_whatever_else_was_not_tested() -> None:
    tried = StaleTry(Verb.SAVE, "item-1", "c1-1", "token 1", "c2-1 had been given token 2", was_accepted=True)
    found = verdict(judge(Evidence(stale_tries=[tried])))
    assert (found.passed, found.word) == (False, "broken")


# Waiting


async def test_who_waits_for_a_line_hears_a_cancel_that_comes_together_with_it() -> None:
    journal = Journal()
    waiting = asyncio.create_task(journal.until(lambda said: said.kind == "late", 20))
    await asyncio.sleep(0)
    journal.hear(Said("c1-1", "late", 1.0, {}))
    waiting.cancel()
    await asyncio.wait([waiting])
    assert waiting.cancelled(), "else an injector of faults would go on for ever"


# What is believed


def said(who: str, kind: str, at_s: float, **fields: object) -> Said:
    return Said(who, kind, at_s, {"name": "alpha", "epoch": 1, **fields})


@pytest.mark.parametrize(("died_s", "end_s"), [(None, 5.0), (3.0, 3.0)])
def test_a_leader_trusts_itself_until_its_last_deadline_or_its_death(died_s: float | None, end_s: float) -> None:
    lines = [said("c1-1", "acquired", 1.0), said("c1-1", "trusts", 1.1, until_s=3.5)]
    journal = Journal(said=[*lines, said("c1-1", "trusts", 2.0, until_s=5.0)])
    if died_s is not None:
        journal.died_s["c1-1"] = died_s
    assert list(beliefs(journal)) == [Believed("alpha", "c1-1", 1, 1.0, end_s)]


@pytest.mark.parametrize(("detail", "end_s"), [("reset", 2.0), ("blackhole", 4.0)])
def test_a_lock_counts_up_to_the_moment_its_session_was_reset(detail: str, end_s: float) -> None:
    lines = [said("c1-1", "lock_held", 1.0, since_s=1.0), said("c1-1", "lock_left", 4.1, since_s=4.1, seen_s=4.0)]
    journal = Journal(said=lines, faults=[Fault("cut", "c1-1", detail, 2.0, 3.0)])
    assert [(one.start, one.end) for one in lock_beliefs(journal)] == [(1.0, end_s)]


# A late write


@pytest.mark.parametrize(("outcome", "told"), [(None, []), (False, [False]), (True, [True])])
async def test_a_late_write_without_an_answer_is_not_counted_as_checked(monkeypatch, outcome, told) -> None:
    heard: list[bool] = []
    monkeypatch.setattr(leading, "tell", lambda *_, **__: None)
    monkeypatch.setattr(leading, "tell_stale", lambda *said: heard.append(said[-1]))
    windows = Mock(stand=AsyncMock(return_value="c2-1 had taken over with epoch 2"))
    one = leading.Leading(Mock(), Mock(), Mock(write_guarded=AsyncMock(return_value=outcome)), windows)
    one._keys["alpha"], one._leaders["alpha"] = Mock(epoch=1), Mock(term=Mock(epoch=1))
    await one._late({"window": 1, "lease": "alpha", "moment": "guarded"})
    assert heard == told


# The page


def test_the_page_escapes_every_word_of_others_and_asks_for_nothing() -> None:
    journal = Journal(began_s=0.0, faults=[Fault("kill", NASTY, NASTY, 1.0, 2.0)], notes=[NASTY])
    broken = Finding(held()[0].invariant, 3, 1, NASTY)
    hook = HookRun("pause-hook", NASTY, 1.0, 2.0, 0, NASTY)
    term = Believed(NASTY, NASTY, 1, 1.0, 2.0)
    text = page(verdict([broken], journal, hooks=[hook], beliefs=[term], not_tested={NASTY: NASTY}))
    assert "<script" not in text
    assert text.count("&lt;script&gt;") >= 9
    assert not [word for word in ("src=", "href=", "url(", "@import") if word in text]


def test_the_page_shows_each_term_and_each_fault() -> None:
    faults = [Fault(kind, f"c{n}-1", f"detail {kind}", n, n + 0.5) for n, kind in enumerate(FAULTS, start=1)]
    terms = [Believed("alpha", "c1-1", 7, 1.0, 2.0), Believed("beta", "c2-1", 8, 2.0, 3.0)]
    text = page(verdict(held(), Journal(began_s=0.0, faults=faults), beliefs=terms))
    assert "alpha: c1-1, epoch 7, from 1.00 s to 2.00 s" in text
    assert all(f"detail {kind}" in text for kind in FAULTS)
