"""`fencehold verify`: tests the guarantees on the user's own database, and reports which of them held."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import signal
import sys
from collections import Counter
from contextlib import nullcontext
from typing import Any

import click
from rich.console import Console
from rich.status import Status
from rich.text import Text

from fencehold.cli import exit_codes
from fencehold.cli.screen import clean, without_secrets
from fencehold.cli.setup import Setup, with_setup
from fencehold.cli.signals import interruptible
from fencehold.model.errors import ConfigurationError
from fencehold.verify.contender_processes import ContenderFailed
from fencehold.verify.hooks import HookRun
from fencehold.verify.journal import Fault, Journal
from fencehold.verify.plan import FAULTS, Plan, plan
from fencehold.verify.report import page
from fencehold.verify.run import run
from fencehold.verify.verdict import Verdict

COLUMNS = ("INVARIANT", "CHECKED", "STATE", "FIRST COUNTER-EXAMPLE")
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

EPILOG = """\b
Faults:
  kill            SIGKILL, and a new contender in its place
  pause           SIGSTOP between check and write, until another takes over
  cut             network reset, silent, or losing answers (not on SQLite)
  restart-client  SIGTERM, and a new contender in its place
  slow            late packets; statements that wait for the locks of others
  clock           its wall clock is set by hours or a day (not on SQLite)
\b
Examples:
  fencehold verify sqlite:///app.db --for 20s
  FENCEHOLD_DSN=postgresql://app@db/app fencehold verify --report verify.html
  fencehold verify --failover-hook 'patronictl switchover --force' -o json

Exit codes: 0 every invariant was put to the test and held, 1 one was broken or never put to the test,
69 database unreachable, 78 bad configuration, 130 interrupted
"""


CELL_CHARS_MAX = 300


@click.command(epilog=EPILOG)
@click.argument("url", required=False)
@click.option("--for", "lasts", metavar="DURATION", default="60s", help="How long faults last (3s to 1h).  [60s]")
@click.option("--contenders", type=int, default=5, help="Processes that contend (2 to 16).  [5]")
@click.option("--faults", default=",".join(FAULTS), metavar="LIST", help="Some of those below, or none.  [all]")
@click.option("--pause-hook", metavar="CMD", help="Your command that pauses the database; run once, at a quarter.")
@click.option("--failover-hook", metavar="CMD", help="Your command that fails it over; run once, after the half.")
@click.option("--hook-limit", metavar="DURATION", default="60s", help="The longest time that a hook may take.  [60s]")
@click.option("--report", metavar="FILE", type=click.Path(dir_okay=False), help="Write the report as one HTML page.")
@with_setup
def verify(setup: Setup, url: str | None, report: str | None, **options: Any) -> int:
    """Kill, freeze and cut off processes that contend on your database, and check what they were promised.

    URL is the database (else --dsn or FENCEHOLD_DSN). Everything happens in a schema of its own (SQLite: a file of its
    own beside yours), which is removed again, also after Ctrl-C; your data is not touched. It needs the right to
    create a schema. Contenders are real processes that lead, write through the fence, handle events, lease items and
    take an advisory lock. The load is that of a few busy clients: at most 16 connections for each contender.
    """
    setup = dataclasses.replace(setup, given_dsn=url if url is not None else setup.given_dsn)
    asked = plan(setup.dsn, **options)
    if report is not None:
        _must_be_writable(report)
    verdict = finished(asked, Watcher(setup))
    if isinstance(verdict, int):
        return verdict
    setup.screen.table(payload(verdict, report), COLUMNS, findings_rows(verdict))
    if not setup.screen.is_json:
        for line in closing_lines(verdict):
            setup.screen.say(line)
    if report is not None:
        _write(report, verdict)
    return exit_codes.OK if verdict.passed else exit_codes.NO


def finished(asked: Plan, watcher: Watcher) -> Verdict | int:
    """Run the plan. Returns the verdict, or an exit code if a signal interrupted the run."""
    try:
        with watcher.live or nullcontext():
            return asyncio.run(interruptible(run(asked, watcher), ENDING, watcher.say))
    except ContenderFailed as error:
        raise exit_codes.Refused(error.message, code=error.code, exit_code=exit_codes.INTERNAL) from error


def _write(report: str, verdict: Verdict) -> None:
    """Write the report. Called after the table is printed: a full disk must not lose the table."""
    try:
        with open(report, "w", encoding="utf-8") as file:
            file.write(without_secrets(page(verdict)))
    except OSError as error:
        raise exit_codes.Refused(
            f"The report could not be written: {error}.", code="report_failed", exit_code=exit_codes.NO_OUTPUT
        ) from None


def _must_be_writable(report: str) -> None:
    """Raise ConfigurationError if the report cannot be written: before a long run, not after it. Creates nothing."""
    folder = os.path.dirname(os.path.abspath(report))
    if not os.path.isdir(folder):
        raise ConfigurationError(f"--report {report}: there is no folder {folder}.", code="bad_report")
    if not os.access(report if os.path.exists(report) else folder, os.W_OK):
        raise ConfigurationError(f"--report {report}: this user may not write there.", code="bad_report")


def ended(hook: HookRun) -> str:
    return "it took too long" if hook.exit_code is None else f"exit code {hook.exit_code}"


def closing_lines(verdict: Verdict) -> list[str]:
    """Return the sentences to print after the table."""
    lines = [f"note: {note}" for note in verdict.journal.notes]
    lines += [f"could not test here: {what}: {reason}" for what, reason in verdict.not_tested.items()]
    if verdict.broken:
        names = ", ".join(one.invariant.name for one in verdict.broken)
        return [*lines, f"BROKEN: {names}"]
    lines += [f"{hook.hook} failed: {ended(hook)}; what it was to do was not tested" for hook in verdict.failed_hooks]
    if verdict.failed_hooks:
        return lines
    if not verdict.passed:
        names = ", ".join(one.invariant.name for one in verdict.not_checked)
        advice = "give it more time or, behind a pooler, the server's own port"
        return [*lines, f"nothing was broken, but a run that never tested {names} proves nothing: {advice}"]
    checked = sum(one.checked for one in verdict.findings)
    return [*lines, f"passed: {checked} checks, {len(verdict.journal.faults)} faults, {verdict.took_s:.0f} s"]


class Watcher:
    """Prints the progress of the run to stderr, but nothing with `-o json`."""

    def __init__(self, setup: Setup) -> None:
        self._screen = setup.screen
        is_live = sys.stderr.isatty() and not setup.screen.is_json
        self.live: Status | None = Console(stderr=True).status("starting") if is_live else None

    def say(self, text: str) -> None:
        if self.live is not None:
            self.live.console.print(f"fencehold: {clean(text)}", markup=False, highlight=False, soft_wrap=True)
        else:
            self._screen.say(text)

    def fault(self, at_s: float, fault: Fault) -> None:
        self.say(f"{at_s:5.1f} s  {fault.kind:14}  {fault.who or '-':6}  {fault.detail}")

    def status(self, at_s: float, journal: Journal) -> None:
        if self.live is not None:
            counts = journal.counts
            text = (
                f"{at_s:.0f} s: {len(journal.faults)} faults, {counts['granted']} terms, {counts['write']} writes, "
                f"{counts['handled']} events, {counts['item']} items, {counts['stale']} stale tries"
            )
            self.live.update(Text(text, no_wrap=True, overflow="ellipsis"))


def findings_rows(verdict: Verdict) -> list[tuple[str, str, str, str]]:
    return [
        (one.invariant.name, str(one.checked), one.state, (one.first or "")[:CELL_CHARS_MAX])
        for one in verdict.findings
    ]


def payload(verdict: Verdict, report: str | None) -> dict[str, Any]:
    """Return the object that `-o json` prints."""
    plan, began_s = verdict.plan, verdict.journal.began_s
    return {
        "verdict": verdict.word,
        "database": plan.label,
        "for_s": plan.for_s,
        "took_s": round(verdict.took_s, 3),
        "contenders": plan.contenders,
        "lease_s": plan.lease_s,
        "invariants": [
            {
                "name": one.invariant.name, "promise": one.invariant.promise, "checked": one.checked, "held": one.held,
                "broken": one.broken, "counter_example": one.first and without_secrets(one.first),
            }
            for one in verdict.findings
        ],
        "faults": dict(Counter(fault.kind for fault in verdict.journal.faults)),
        "not_tested": verdict.not_tested,
        "hooks": [
            {
                "hook": one.hook, "command": without_secrets(one.command), "at_s": round(one.began_s - began_s, 3),
                "took_s": round(one.ended_s - one.began_s, 3), "exit_code": one.exit_code,
                "output": without_secrets(one.output),
            }
            for one in verdict.hooks
        ],
        "notes": [without_secrets(note) for note in verdict.journal.notes],
        "left_behind": verdict.left_behind,
        "report": report,
    }  # fmt: skip
