"""Turns the journal and the database's own records into evidence, and judges the evidence by the invariants."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from fencehold.testing import evidence as ev
from fencehold.testing.history import Believed, Granted
from fencehold.testing.invariants import Finding, judge
from fencehold.verify.hooks import HookRun
from fencehold.verify.journal import Journal
from fencehold.verify.plan import LOCK, Plan
from fencehold.verify.scratch.place import Scratch


@dataclass(frozen=True)
class Verdict:
    """The result of a run. `passed`: every invariant held, none was broken or left untested, and no hook failed.

    A hook is a command of the user's own that ran during the run. `left_behind` says what could not be removed.
    """

    plan: Plan
    findings: Sequence[Finding]
    beliefs: Sequence[Believed]
    lock_beliefs: Sequence[Believed]
    journal: Journal
    hooks: Sequence[HookRun]
    not_tested: dict[str, str]
    took_s: float
    left_behind: str | None = field(default=None)

    @property
    def broken(self) -> list[Finding]:
        return [finding for finding in self.findings if finding.held is False]

    @property
    def not_checked(self) -> list[Finding]:
        return [one for one in self.findings if one.held is None]

    @property
    def failed_hooks(self) -> list[HookRun]:
        """The hooks (the user's commands) that failed: what they were to do was perhaps not done, and so not tested."""
        return [hook for hook in self.hooks if hook.exit_code != 0]

    @property
    def passed(self) -> bool:
        return not self.broken and not self.not_checked and not self.failed_hooks

    @property
    def word(self) -> str:
        if self.broken:
            return "broken"
        return "passed" if self.passed else "inconclusive"


async def gathered(scratch: Scratch, journal: Journal) -> ev.Evidence:
    """Return all evidence of the run. Reads the database, so it is called after the contenders have ended.

    The columns of the statements and the fields of the reports have the order of the evidence's fields.
    """
    rows = {name: await scratch.rows(name) for name in ROWS}
    return ev.Evidence(
        grants=grants(journal),
        beliefs=list(beliefs(journal)),
        lease_changes=[ev.LeaseChange(*row) for row in rows["lease_changes"]],
        seized=frozenset({LOCK}),
        writes=[ev.FencedWrite(*row) for row in rows["writes"]],
        told_writes=[ev.ToldWrite(**said.fields) for said in journal.of_kind("write")],
        counters=dict(rows["counters"]),
        stale_tries=[_stale_try(said.who, said.fields) for said in journal.of_kind("stale")],
        events_added=journal.events_added,
        events_there=dict(rows["events"]),
        event_changes=[ev.EventChange(*row) for row in rows["event_changes"]],
        item_changes=[_item_change(row) for row in rows["item_changes"]],
        lock_beliefs=list(lock_beliefs(journal)),
    )


ROWS = ("lease_changes", "writes", "counters", "events", "event_changes", "item_changes")


def findings(evidence: ev.Evidence, has_locks: bool) -> list[Finding]:
    """Judge the evidence and return one finding per invariant.

    Without advisory locks, those about locks are left out.
    """
    return [one for one in judge(evidence) if has_locks or not one.invariant.needs_lock]


def _stale_try(who: str, fields: dict[str, Any]) -> ev.StaleTry:
    verb = ev.Verb[fields["verb"]]
    return ev.StaleTry(verb, fields["what"], who, fields["token"], fields["seen"], fields["was_accepted"])


def _item_change(row: tuple[Any, ...]) -> ev.ItemChange:
    columns = (*row[:-1], json.loads(row[-1]).get("token"))
    return ev.ItemChange(*columns)


def grants(journal: Journal) -> list[Granted]:
    return [Granted(said["name"], said.who, said["epoch"], said["store_s"]) for said in journal.of_kind("granted")]


def beliefs(journal: Journal) -> Iterator[Believed]:
    """Yield, for each term, the interval in which its leader believed that it led.

    It lasts from the grant until the earliest of these: the reported end, the last deadline, the death of the process.
    """
    terms: dict[tuple[str, str, int], list[Any]] = {}
    for said in journal.of_kind("acquired", "trusts", "ended"):
        terms.setdefault((said["name"], said.who, said["epoch"]), []).append(said)
    for (name, who, epoch), lines in terms.items():
        starts = [line.at_s for line in lines if line.kind in ("acquired", "trusts")]
        if not starts:
            continue
        ends = [line.at_s for line in lines if line.kind == "ended"]
        until_s = max((line["until_s"] for line in lines if line.kind == "trusts"), default=min(starts))
        end_s = min([until_s, *ends, *([journal.died_s[who]] if who in journal.died_s else [])])
        yield Believed(name, who, epoch, min(starts), max(min(starts), end_s))


def lock_beliefs(journal: Journal) -> Iterator[Believed]:
    """Yield the intervals in which processes believed that they held the lock: while `is_leader` was seen true.

    When a session was cut or a server was switched over, the lock is free a moment before its holder can know, as the
    lock's documentation states: the time after the cut is not counted.
    """
    cuts = [fault for fault in journal.faults if fault.detail.startswith("reset") or not fault.who]
    for who, since_s, until_s in _spans(journal):
        cut_s = [f.began_s for f in cuts if f.who in ("", who) and since_s <= f.began_s]
        end_s = min([until_s, *cut_s])
        yield Believed("advisory lock", who, int(since_s * 1000), since_s, max(since_s, end_s))


def _spans(journal: Journal) -> Iterable[tuple[str, float, float]]:
    open_at: dict[str, tuple[float, float]] = {}
    for said in journal.said:
        match said.kind:
            case "lock_held":
                open_at[said.who] = (said["since_s"], said["since_s"])
            case "lock_seen" if said.who in open_at:
                open_at[said.who] = (open_at[said.who][0], said["seen_s"])
            case "lock_left" if said.who in open_at:
                yield said.who, open_at.pop(said.who)[0], said["seen_s"]
    yield from ((who, since_s, seen_s) for who, (since_s, seen_s) in open_at.items())
