"""Judges a crash run from what it left: the table, the audit of every status change, and the workers' own files.

Knows the rules only as they are promised, and shares no code with what it judges.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

SLACK_S = 0.5  # between a statement's look at the clock and the audit's
SHOWN_MAX = 20


@dataclass(frozen=True)
class Change:
    """One row of the audit, in the order in which they happened to the event."""

    tracking_id: str
    old: str
    new: str
    old_token: str | None
    new_token: str | None
    old_retries: int
    new_retries: int
    lease_until_s: float | None  # of the row before the change
    at_s: float


@dataclass(frozen=True)
class Row:
    """One event as it stands at the end."""

    tracking_id: str
    status: str
    retries: int
    token: str | None
    took_s: float | None = None


@dataclass(frozen=True)
class Mark:
    """One line of a worker's file: S start, E end, F failed on purpose."""

    kind: str
    tracking_id: str
    token: str
    attempt: int
    at_s: float


@dataclass
class Verdict:
    violations: list[str] = field(default_factory=list)
    numbers: Counter[str] = field(default_factory=Counter)
    completed_s: list[float] = field(default_factory=list)
    recovered: list[tuple[float, float]] = field(default_factory=list)  # when, and how long after the lease was over
    longest_s: float = 0.0

    def blame(self, what: str) -> None:
        self.violations.append(what)

    def shown(self) -> str:
        more = len(self.violations) - SHOWN_MAX
        lines = self.violations[:SHOWN_MAX] + ([f"... and {more} more"] if more > 0 else [])
        return "\n".join(lines)


@dataclass
class Claimed:
    """One claim of one event, from when it was granted to when it ended."""

    token: str
    attempt: int
    at_s: float
    ended_s: float | None = None
    ended_as: str = ""


def judge(fed: Iterable[str], rows: Sequence[Row], changes: Sequence[Change], marks: Sequence[Mark]) -> Verdict:
    verdict = Verdict()
    _judge_presence(set(fed), rows, verdict)
    history: dict[str, list[Change]] = defaultdict(list)
    for change in changes:
        history[change.tracking_id].append(change)
    written: dict[str, list[Mark]] = defaultdict(list)
    for mark in marks:
        written[mark.tracking_id].append(mark)
    for row in rows:
        claims = _Walk(row, verdict).walk(history[row.tracking_id])
        _judge_marks(row.tracking_id, claims, written[row.tracking_id], verdict)
        verdict.longest_s = max(verdict.longest_s, row.took_s or 0.0)
    verdict.completed_s.sort()
    return verdict


def _judge_presence(fed: set[str], rows: Sequence[Row], verdict: Verdict) -> None:
    there = {row.tracking_id for row in rows}
    for lost in sorted(fed - there):
        verdict.blame(f"{lost}: lost, it was added and is not in the table")
    for strange in sorted(there - fed):
        verdict.blame(f"{strange}: nobody added it")
    if len(there) != len(rows):
        verdict.blame(f"{len(rows) - len(there)} events are in the table twice")
    verdict.numbers["events"] = len(rows)


class _Walk:
    """One event's history against the rules."""

    def __init__(self, row: Row, verdict: Verdict) -> None:
        self._row, self._verdict = row, verdict
        self._status, self._retries, self._at_s = "PENDING", 0, 0.0
        self._token: str | None = None
        self._claims: list[Claimed] = []
        self._ends: Counter[str] = Counter()

    def walk(self, changes: Sequence[Change]) -> list[Claimed]:
        for change in changes:
            before = (self._status, self._token, self._retries)
            if before != (change.old, change.old_token, change.old_retries):
                self._blame(f"went from {before} to {change.old, change.old_token, change.old_retries} unseen")
            if change.at_s < self._at_s - SLACK_S:
                self._blame("its history goes back in time")
            self._step(change)
            self._status, self._token = change.new, change.new_token
            self._retries, self._at_s = change.new_retries, change.at_s
        self._judge_end()
        return self._claims

    def _step(self, change: Change) -> None:
        match change.old, change.new:
            case (("PENDING" | "FAILED"), "PROCESSING"):
                self._claim(change)
            case "PROCESSING", "COMPLETED":
                self._end(change, "completed", counts=0)
                if change.new_token != change.old_token:
                    self._blame(f"claimed as {change.old_token}, completed as {change.new_token}")
            case "PROCESSING", "FAILED":
                self._end(change, "failed", counts=1)
            case "PROCESSING", "PENDING" if change.new_retries == change.old_retries:
                self._end(change, "released", counts=0)
            case "PROCESSING", "PENDING":
                self._end(change, "reaped", counts=1)
            case _:
                self._blame(f"went from {change.old} ({change.old_token}) to {change.new} ({change.new_token})")
                self._ends["completed"] += change.new == "COMPLETED"

    def _claim(self, change: Change) -> None:
        if not change.new_token:
            self._blame("claimed without a token")
        if any(claim.token == change.new_token for claim in self._claims):
            self._blame(f"claimed twice under the token {change.new_token}")
        if self._claims and self._claims[-1].ended_s is None:
            self._blame(f"claimed as {change.new_token} while {self._claims[-1].token} held it")
        self._counted(change, 0)
        self._claims.append(Claimed(change.new_token or "", change.new_retries + 1, change.at_s))

    def _end(self, change: Change, how: str, counts: int) -> None:
        self._ends[how] += 1
        self._counted(change, counts)
        until_s = change.lease_until_s or 0.0
        if how == "reaped":
            self._verdict.recovered.append((change.at_s, change.at_s - until_s))
        if how == "reaped" and change.at_s < until_s - 0.01:
            self._blame(f"reaped {until_s - change.at_s:.3f} s before its lease was over")
        if how != "reaped" and change.at_s > until_s + SLACK_S:
            self._blame(f"{how} {change.at_s - until_s:.3f} s after its lease was over")
        if not self._claims or self._claims[-1].token != change.old_token:
            self._blame(f"{how} under {change.old_token}, which is not its last claim")
            return
        claim = self._claims[-1]
        claim.ended_s, claim.ended_as = change.at_s, how

    def _counted(self, change: Change, by: int) -> None:
        if change.new_retries != change.old_retries + by:
            self._blame(f"retry_count went from {change.old_retries} to {change.new_retries} at {change.new}")

    def _judge_end(self) -> None:
        row, ends, verdict = self._row, self._ends, self._verdict
        if row.status != "COMPLETED":
            self._blame(f"stuck or given up: {row.status} after {len(self._claims)} claims")
        if (row.status, row.token, row.retries) != (self._status, self._token, self._retries):
            self._blame("the table does not say what its history says")
        if ends["completed"] > 1:
            self._blame(f"completed {ends['completed']} times")
        if row.status == "COMPLETED" and self._claims and row.token != self._claims[-1].token:
            self._blame(f"completed under {row.token}, last claimed as {self._claims[-1].token}")
        if row.retries != ends["failed"] + ends["reaped"]:
            self._blame(f"retry_count {row.retries}, but {ends['failed']} failed and {ends['reaped']} reaped")
        if len(self._claims) != sum(ends.values()):
            self._blame(f"{len(self._claims)} claims and {sum(ends.values())} ends")
        for how, count in ends.items():
            verdict.numbers[how] += count
        verdict.numbers["claims"] += len(self._claims)
        verdict.numbers["most claims"] = max(verdict.numbers["most claims"], len(self._claims))
        verdict.completed_s += [c.ended_s for c in self._claims if c.ended_as == "completed" and c.ended_s is not None]

    def _blame(self, what: str) -> None:
        self._verdict.blame(f"{self._row.tracking_id}: {what}")


def _judge_marks(tracking_id: str, claims: list[Claimed], marks: list[Mark], verdict: Verdict) -> None:
    by_token = {claim.token: claim for claim in claims}
    starts = Counter(mark.token for mark in marks if mark.kind == "S")
    ends = {mark.token: mark for mark in marks if mark.kind == "E"}
    failures = {mark.token for mark in marks if mark.kind == "F"}
    verdict.numbers["starts"] += sum(starts.values())
    for token, count in starts.items():
        if token not in by_token:
            verdict.blame(f"{tracking_id}: handled under {token}, which never claimed it")
        elif count > 1:
            verdict.blame(f"{tracking_id}: handled {count} times in one claim ({token})")
    if sum(starts.values()) > len(claims):
        verdict.blame(f"{tracking_id}: {sum(starts.values())} starts and {len(claims)} claims")
    for mark in marks:
        claim = by_token.get(mark.token)
        if claim is not None:
            _judge_mark(mark, claim, verdict)
    for claim in claims:
        end = ends.get(claim.token)
        if claim.ended_as == "completed" and (end is None or end.at_s > (claim.ended_s or 0.0) + SLACK_S / 10):
            verdict.blame(f"{tracking_id}: completed as {claim.token} before its handler had ended")
        if claim.ended_as == "failed" and claim.token not in failures:
            verdict.blame(f"{tracking_id}: failed as {claim.token}, whose handler did not raise")


def _judge_mark(mark: Mark, claim: Claimed, verdict: Verdict) -> None:
    if mark.attempt != claim.attempt:
        verdict.blame(f"{mark.tracking_id}: handled as attempt {mark.attempt}, claimed as attempt {claim.attempt}")
    if mark.at_s < claim.at_s - SLACK_S / 10:
        verdict.blame(f"{mark.tracking_id}: handled {claim.at_s - mark.at_s:.3f} s before it was claimed")
    is_stale = claim.ended_s is not None and mark.at_s > claim.ended_s + SLACK_S / 10
    # Not a violation: a frozen process can go on with anything. How often is worth knowing.
    verdict.numbers["stale starts"] += is_stale and mark.kind == "S"
    verdict.numbers["stale ends"] += is_stale and mark.kind == "E"
