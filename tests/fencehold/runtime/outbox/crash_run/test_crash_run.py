"""The crash run in small, its referee's eyesight, and workers that outlive their database."""

import asyncio
import dataclasses
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

import fencehold
from tests.conftest import not_run
from tests.fencehold.runtime.outbox.crash_run.chaos import Blow, blows
from tests.fencehold.runtime.outbox.crash_run.database import prepare
from tests.fencehold.runtime.outbox.crash_run.referee import Change, Mark, Row, judge
from tests.fencehold.runtime.outbox.crash_run.run import Options, run
from tests.fencehold.runtime.outbox.crash_run.summary import SETTLE_S, WINDOW_S, rates_around, silences_s
from tests.servers.postgres import PostgresServer, binaries_of
from tests.servers.programs import Missing

ROOT = Path(__file__).parents[5]
SHORT = Options(seconds=8, events=2000, seed=7)
#: As many at once as they hold, and none of them busy: the rate is the handlers' own, whatever else the machine does.
STEADY = Options(seconds=8.5, events=6000, feed_s=0, work_ms=(60, 60), fail_part=0.0, calm_s=SETTLE_S + WINDOW_S)


@pytest.fixture
def needs_postgres(request: pytest.FixtureRequest) -> None:
    try:
        binaries_of()
    except Missing as missing:
        not_run(request.config, missing)


# The run itself


@pytest.mark.fault("kill", "outbox", "postgres")
@pytest.mark.fault("freeze", "outbox", "postgres")
@pytest.mark.fault("server-restart", "outbox", "postgres")
@pytest.mark.usefixtures("needs_postgres")
def test_kills_freezes_and_restarts_lose_nothing_and_complete_nothing_twice() -> None:
    outcome = run(SHORT)
    assert outcome.verdict.violations == [], f"{outcome.verdict.shown()}\nagain: {SHORT.replay()}"
    assert outcome.verdict.numbers["completed"] == SHORT.events
    assert outcome.verdict.numbers["reaped"] > 0, "no blow cost anybody an event"
    assert outcome.tally.kills
    assert outcome.tally.stops
    assert outcome.tally.restarts


@pytest.mark.fault("kill", "outbox", "sqlite")
@pytest.mark.fault("freeze", "outbox", "sqlite")
def test_kills_and_freezes_lose_nothing_on_sqlite() -> None:
    options = dataclasses.replace(SHORT, database="sqlite", seconds=5, events=1200)
    outcome = run(options)
    assert outcome.verdict.violations == [], f"{outcome.verdict.shown()}\nagain: {options.replay()}"
    assert outcome.verdict.numbers["completed"] == options.events


@pytest.mark.usefixtures("needs_postgres")
def test_a_database_restarted_twice_under_load_finds_the_same_workers_at_their_old_rate() -> None:
    planned = [Blow(at_s=2.5, kind="restart", crash=True), Blow(at_s=5.5, kind="restart", crash=False)]
    outcome = run(STEADY, planned)
    assert outcome.verdict.violations == [], outcome.verdict.shown()
    before, after = outcome.pids
    assert before == after
    assert len(outcome.tally.restarts) == len(planned)
    for rate_before, rate_after in rates_around(outcome.verdict.completed_s, outcome.tally.restarts):
        assert rate_before > 20, "not under load"
        assert rate_after >= rate_before / 2
    assert len(silences_s(outcome.verdict.completed_s, outcome.tally.restarts)) == len(planned)


async def test_a_worker_started_while_the_database_is_away_begins_when_it_is_back(own_postgres: PostgresServer) -> None:
    await asyncio.to_thread(prepare, own_postgres.dsn())
    handled = asyncio.Event()

    async def handle(event: fencehold.Claim) -> None:
        handled.set()

    async with fencehold.connect(own_postgres.dsn()) as store:
        outbox = store.outbox(lease=2)
        await outbox.add("one", {})
        await asyncio.to_thread(own_postgres.kill9)
        worker = outbox.worker(handle)
        running = asyncio.create_task(worker.run())
        done, _ = await asyncio.wait([running], timeout=1.0)
        assert not done, "it gave up"
        await asyncio.to_thread(own_postgres.start)
        await asyncio.wait_for(handled.wait(), 20)
        worker.stop()
        await running


def test_a_seed_fixes_the_blows() -> None:
    planned = blows(7, 60, 4, 2.0, restarts=True)
    assert planned == blows(7, 60, 4, 2.0, restarts=True)
    assert planned != blows(8, 60, 4, 2.0, restarts=True)
    assert {blow.kind for blow in blows(1, 5, 4, 2.0, restarts=True)} == {"kill", "stop", "restart"}
    assert {blow.kind for blow in blows(1, 20, 4, 2.0, restarts=False)} == {"kill", "stop"}


def test_ctrl_c_ends_every_process_of_the_run() -> None:
    command = [sys.executable, "-m", "tests.fencehold.runtime.outbox.crash_run.run", "--database", "sqlite"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, start_new_session=True) as tool:
        assert tool.stdout is not None
        for line in tool.stdout:
            if "COMPLETED" in line:
                break
        family = psutil.Process(tool.pid).children(recursive=True)
        os.kill(tool.pid, signal.SIGINT)
        rest = tool.stdout.read()
        assert tool.wait(20) == 130, rest
    assert family
    assert psutil.wait_procs(family, timeout=5)[1] == []


# The referee sees


@pytest.mark.parametrize(("sabotage", "seen"), [("no_token", ": went from "), ("same_token", "claimed twice under")])
def test_a_run_with_workers_that_break_a_rule_is_objected_to(sabotage: str, seen: str) -> None:
    options = dataclasses.replace(SHORT, database="sqlite", seconds=2.5, events=400, lease_s=0.5, sabotage=sabotage)
    planned = [Blow(at_s=0.2 * n + 0.2, kind="stop", worker=n, moment="before", hold_s=1.5) for n in range(3)]
    violations = run(options, planned).verdict.violations
    assert any(seen in violation for violation in violations), violations


def claim(token: str, old: str = "PENDING", retries: int = 0, at_s: float = 1.0) -> Change:
    return Change("e", old, "PROCESSING", None, token, retries, retries, None, at_s)


def done(token: str, retries: int = 0, at_s: float = 2.0, until_s: float = 3.0) -> Change:
    return Change("e", "PROCESSING", "COMPLETED", token, token, retries, retries, until_s, at_s)


def reaped(token: str, retries: int = 1, at_s: float = 3.1, until_s: float = 3.0) -> Change:
    return Change("e", "PROCESSING", "PENDING", token, None, retries - 1, retries, until_s, at_s)


def handled(token: str, attempt: int = 1, at_s: float = 1.1) -> list[Mark]:
    return [Mark("S", "e", token, attempt, at_s), Mark("E", "e", token, attempt, at_s + 0.1)]


RIGHT = Row("e", "COMPLETED", 0, "a")
AGAIN = Row("e", "COMPLETED", 1, "b")
TWO_CLAIMS = [claim("a"), reaped("a"), claim("b", retries=1, at_s=4.0), done("b", 1, 5.0, 6.0)]
TWICE = Change("e", "COMPLETED", "COMPLETED", "a", "a", 0, 0, None, 2.5)
TAKEN = Change("e", "PROCESSING", "PROCESSING", "a", "b", 0, 0, 3.0, 1.5)
UNCOUNTED = Change("e", "PROCESSING", "FAILED", "a", None, 0, 0, 3.0, 2.0)


def test_the_referee_has_nothing_against_a_clean_history() -> None:
    assert judge(["e"], [RIGHT], [claim("a"), done("a")], handled("a")).violations == []
    verdict = judge(["e"], [AGAIN], TWO_CLAIMS, handled("a") + handled("b", 2, 4.1))
    assert verdict.violations == []
    assert (verdict.numbers["claims"], verdict.numbers["reaped"], verdict.numbers["starts"]) == (2, 1, 2)


@pytest.mark.parametrize(
    ("row", "changes", "marks", "seen"),
    [
        (None, [], [], "lost"),
        (Row("e", "PENDING", 0, None), [], [], "stuck"),
        (Row("e", "PROCESSING", 0, "a"), [claim("a")], handled("a"), "stuck"),
        (Row("e", "DEAD_LETTER", 0, None), [], [], "given up"),
        (RIGHT, [claim("a"), done("a"), TWICE], handled("a"), "completed 2 times"),
        (RIGHT, [claim("a"), TAKEN, done("b")], handled("a"), "went from PROCESSING (a) to PROCESSING (b)"),
        (RIGHT, [claim("a"), done("a", at_s=5.0)], handled("a"), "after its lease was over"),
        (AGAIN, [*TWO_CLAIMS[:1], reaped("a", at_s=2.0), *TWO_CLAIMS[2:]], handled("b", 2, 4.1), "before its lease"),
        (dataclasses.replace(AGAIN, token="a"), [*TWO_CLAIMS[:3], done("a", 1, 5.0, 6.0)], [], "not its last claim"),
        (RIGHT, [claim("a"), claim("b"), done("b")], handled("b"), "unseen"),
        (AGAIN, [*TWO_CLAIMS[:2], claim("a", retries=1), done("a", 1)], [], "claimed twice under the token a"),
        (RIGHT, [claim("a"), UNCOUNTED, claim("a", "FAILED"), done("a")], handled("a"), "retry_count went from 0 to 0"),
        (dataclasses.replace(RIGHT, retries=1), [claim("a"), done("a")], handled("a"), "does not say what its history"),
        (RIGHT, [claim("a"), done("a")], [], "before its handler had ended"),
        (RIGHT, [claim("a"), done("a")], handled("a", at_s=2.5), "before its handler had ended"),
        (RIGHT, [claim("a"), done("a")], handled("a", at_s=0.5), "before it was claimed"),
        (RIGHT, [claim("a"), done("a")], handled("a") * 2, "handled 2 times in one claim"),
        (RIGHT, [claim("a"), done("a")], handled("a") + handled("x"), "which never claimed it"),
        (RIGHT, [claim("a"), done("a")], handled("a", attempt=2), "handled as attempt 2"),
    ],
)
def test_the_referee_objects(row: Row | None, changes: list[Change], marks: list[Mark], seen: str) -> None:
    violations = judge(["e"], [row] if row else [], changes, marks).violations
    assert any(seen in violation for violation in violations), violations


def test_the_referee_objects_to_an_event_nobody_added() -> None:
    assert "nobody added it" in judge([], [RIGHT], [claim("a"), done("a")], handled("a")).shown()


def test_of_many_objections_the_first_are_shown() -> None:
    verdict = judge([f"{time.time()} {n}" for n in range(30)], [], [], [])
    assert verdict.shown().endswith("... and 10 more")
