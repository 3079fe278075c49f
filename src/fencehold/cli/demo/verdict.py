"""The demo's result: computed from the database's rows and the workers' lines, by the rules of testing/history.py."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from fencehold.cli.demo.worker import LATE, LEASE
from fencehold.testing import history

STALE_RULES = {history.Rule.WRITES_IN_ORDER, history.Rule.WRITES_ARE_GRANTED}


@dataclass(frozen=True)
class Said:
    """One line written by one worker."""

    worker: str
    event: str
    at_s: float
    epoch: int
    fields: dict[str, Any]


@dataclass(frozen=True)
class Written:
    """One row of the demo's table. Ids are in commit order, because SQLite has one writer."""

    id: int
    holder_id: str
    epoch: int
    note: str


@dataclass(frozen=True)
class Verdict:
    writes_accepted: int
    stale_writes_accepted: int
    two_leaders_at_once: int

    @property
    def is_good(self) -> bool:
        """No faults, and at least one write: a run without any write proves nothing."""
        return self.writes_accepted > 0 and self.stale_writes_accepted == self.two_leaders_at_once == 0


def verdict(said: Sequence[Said], rows: Sequence[Written], died_s: dict[str, float]) -> Verdict:
    """Compute the verdict. `died_s`: when each killed worker was seen dead."""
    events: list[history.Event] = [history.Wrote(LEASE, row.holder_id, row.epoch, row.id) for row in rows]
    for worker, epoch in dict.fromkeys((line.worker, line.epoch) for line in said if line.event == "acquired"):
        term = [line for line in said if (line.worker, line.epoch) == (worker, epoch)]
        events += _term_of(worker, epoch, term, died_s.get(worker))
    broken = [violation.rule for violation in history.check(events)]
    stale = sum(rule in STALE_RULES for rule in broken)
    late = sum(row.note == LATE for row in rows)
    return Verdict(len(rows), max(stale, late), len(broken) - stale)


def _term_of(worker: str, epoch: int, lines: Sequence[Said], died_s: float | None) -> Iterable[history.Event]:
    """The events of one term. A worker trusts itself from the grant until its last deadline, its end, or its death."""
    start_s = next(line.at_s for line in lines if line.event == "acquired")
    until_s = max((line.fields["until_s"] for line in lines if line.event == "trusts"), default=start_s)
    ends_s = [line.at_s for line in lines if line.event == "ended"]
    end_s = min([until_s, *ends_s, *([died_s] if died_s is not None else [])])
    yield history.Believed(LEASE, worker, epoch, start_s, max(start_s, end_s))
    for line in lines:
        if line.event == "granted":
            yield history.Granted(LEASE, worker, epoch, line.fields["store_s"])
