"""The output of `verify`: one line per fault, a line of counts on a terminal, a table or JSON at the end."""

from __future__ import annotations

import sys
from collections import Counter
from types import TracebackType
from typing import Any, Self

from rich.console import Console
from rich.status import Status
from rich.text import Text

from fencehold.cli.screen import clean, without_secrets
from fencehold.cli.setup import Setup
from fencehold.verify.journal import Fault, Journal
from fencehold.verify.verdict import Verdict

CELL_CHARS_MAX = 300


class Watcher:
    """Prints progress to stderr, but none with `-o json`."""

    def __init__(self, setup: Setup) -> None:
        self._screen = setup.screen
        is_live = sys.stderr.isatty() and not setup.screen.is_json
        self._status: Status | None = Console(stderr=True).status("starting") if is_live else None

    def __enter__(self) -> Self:
        if self._status is not None:
            self._status.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._status is not None:
            self._status.stop()

    def say(self, text: str) -> None:
        if self._status is not None:
            self._status.console.print(f"fencehold: {clean(text)}", markup=False, highlight=False, soft_wrap=True)
        else:
            self._screen.say(text)

    def fault(self, at_s: float, fault: Fault) -> None:
        self.say(f"{at_s:5.1f} s  {fault.kind:14}  {fault.who or '-':6}  {fault.detail}")

    def status(self, at_s: float, journal: Journal) -> None:
        if self._status is not None:
            counts = journal.counts
            text = (
                f"{at_s:.0f} s: {len(journal.faults)} faults, {counts['granted']} terms, {counts['write']} writes, "
                f"{counts['handled']} events, {counts['item']} items, {counts['stale']} stale tries"
            )
            self._status.update(Text(text, no_wrap=True, overflow="ellipsis"))


def findings_rows(verdict: Verdict) -> list[tuple[str, str, str, str]]:
    return [
        (one.invariant.name, str(one.checked), one.state, (one.first or "")[:CELL_CHARS_MAX])
        for one in verdict.findings
    ]


def payload(verdict: Verdict, report: str | None) -> dict[str, Any]:
    """The object that `-o json` prints."""
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
