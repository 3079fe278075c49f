"""The demo's result: computed from the database's rows and the workers' reports, by the rules of testing/history.py."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fencehold.cli.demo.worker import LATE, LEASE
from fencehold.testing import history
from fencehold.verify.journal import Journal
from fencehold.verify.verdict import beliefs, grants

STALE_RULES = {history.Rule.WRITES_IN_ORDER, history.Rule.WRITES_ARE_GRANTED}


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


def verdict(journal: Journal, rows: Sequence[Written]) -> Verdict:
    writes = [history.Wrote(LEASE, row.holder_id, row.epoch, row.id) for row in rows]
    broken = [violation.rule for violation in history.check([*writes, *grants(journal), *beliefs(journal)])]
    stale = sum(rule in STALE_RULES for rule in broken)
    late = sum(row.note == LATE for row in rows)
    return Verdict(len(rows), max(stale, late), len(broken) - stale)
