"""Records what processes see while it happens, and judges it afterwards: a run is safe if `check` finds nothing.

Judged per lease name:

- epochs of accepted writes never decrease in commit order;
- one epoch has one holder;
- grants strictly increase;
- no two intervals overlap in which a process believed that its term was valid;
- an accepted write carries an epoch that was granted.

Times are seconds on one clock of the whole machine that runs through suspend (`boottime_s`), so intervals recorded by
different processes may be compared; histories of several machines may not. Not judged: whether everything that
happened was recorded. A process records a grant before it uses it: a kill -9 may hide a grant, but not of a write.

`python -m fencehold.testing.history FILE` prints the violations and exits 1 if there are any.
"""

from __future__ import annotations

import json
import os
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from enum import Enum
from pathlib import Path
from typing import Any, TypeVar

from fencehold.ports.clock import boot_s

CLOSE_ON_EXEC = getattr(os, "O_CLOEXEC", 0)  # Windows passes no file on to child processes by default


def boottime_s() -> float:
    """Return the time in seconds on a clock that all processes of this machine share and that never goes back."""
    return boot_s()


@dataclass(frozen=True, slots=True)
class OfTerm:
    """The fields that every recorded event has: the name of a lease, and the holder and epoch of one of its terms."""

    name: str
    holder_id: str
    epoch: int


@dataclass(frozen=True, slots=True)
class Granted(OfTerm):
    """The event that the store granted this epoch. `at` orders the grants of a name.

    `at` is the store's own `acquired_at`, where that is known: by the time of receipt, a grant whose answer was slow
    would come after a later one.
    """

    at: float


@dataclass(frozen=True, slots=True)
class Believed(OfTerm):
    """The interval in which a process's own `is_valid` was true, from `start` until before `end`.

    One interval per term.
    """

    start: float
    end: float

    def __post_init__(self) -> None:
        if not self.start <= self.end:
            raise ValueError(f"an interval cannot end ({self.end}) before it starts ({self.start})")


@dataclass(frozen=True, slots=True)
class Wrote(OfTerm):
    """The event that a fenced write was accepted. `commit_order` is drawn inside the write's own transaction."""

    commit_order: int


@dataclass(frozen=True, slots=True)
class Refused(OfTerm):
    """The event that a fenced write was refused: this is no violation, but shows that the fence was put to the test."""

    at: float
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Ended(OfTerm):
    """The event that a process gave its term up, or learned that the term was lost."""

    at: float
    reason: str = ""


Event = Granted | Believed | Wrote | Refused | Ended
E = TypeVar("E", Granted, Wrote)

_KINDS: dict[str, type[Event]] = {made.__name__.lower(): made for made in (Granted, Believed, Wrote, Refused, Ended)}


class Rule(Enum):
    """The rules that a history may break; the value is the sentence that is printed for a violation."""

    WRITES_IN_ORDER = "a write of an older epoch was accepted after a newer one"
    ONE_HOLDER_PER_EPOCH = "one epoch had two holders"
    GRANTS_INCREASE = "a grant did not increase the epoch"
    ONE_VALID_TERM = "two terms were valid at once"
    WRITES_ARE_GRANTED = "a write was accepted with an epoch that was never granted"


@dataclass(frozen=True, slots=True)
class Violation:
    """One broken rule, with the two events that show it; a write without a grant is shown by one event."""

    rule: Rule
    name: str
    events: tuple[Event, ...]

    def __str__(self) -> str:
        return f"{self.name}: {self.rule.value}: " + "; ".join(map(str, self.events))


def check(history: Iterable[Event]) -> list[Violation]:
    """Return every violation in the history, whose events may be in any order; an empty list means none."""
    by_name: defaultdict[str, list[Event]] = defaultdict(list)
    for event in history:
        by_name[event.name].append(event)
    return [violation for _, events in sorted(by_name.items()) for violation in _check_one_name(events)]


def _check_one_name(events: Sequence[Event]) -> Iterator[Violation]:
    # A retry that recognises its own grant records the same grant again.
    grants = list(dict.fromkeys(event for event in events if isinstance(event, Granted)))
    writes = [event for event in events if isinstance(event, Wrote)]
    # Of two writes with one commit_order the newer epoch goes first, to be a violation: one commit has one epoch.
    ordered = sorted(writes, key=lambda write: (write.commit_order, -write.epoch))
    yield from _not_rising(ordered, Rule.WRITES_IN_ORDER, 0)
    yield from _holders_sharing_an_epoch(events)
    yield from _not_rising(sorted(grants, key=lambda grant: (grant.at, grant.epoch)), Rule.GRANTS_INCREASE, 1)
    yield from _terms_overlapping([event for event in events if isinstance(event, Believed)])
    yield from _writes_not_granted(writes, {grant.epoch for grant in grants})


def _not_rising(events: Iterable[E], rule: Rule, rises_by: int) -> Iterator[Violation]:
    """Yield a violation for each event whose epoch is less than `rises_by` above the newest epoch before it."""
    newest: E | None = None
    for event in events:
        if newest is not None and event.epoch < newest.epoch + rises_by:
            yield Violation(rule, event.name, (newest, event))
        else:
            newest = event


def _holders_sharing_an_epoch(events: Iterable[Event]) -> Iterator[Violation]:
    first_of: dict[int, Event] = {}
    reported: set[tuple[int, str]] = set()
    for event in events:
        if isinstance(event, Refused):
            continue  # Anyone may try with any epoch; that is what the fence is for.
        first = first_of.setdefault(event.epoch, event)
        if first.holder_id != event.holder_id and (event.epoch, event.holder_id) not in reported:
            reported.add((event.epoch, event.holder_id))
            yield Violation(Rule.ONE_HOLDER_PER_EPOCH, event.name, (first, event))


def _terms_overlapping(beliefs: Iterable[Believed]) -> Iterator[Violation]:
    furthest: Believed | None = None
    for belief in sorted(beliefs, key=lambda belief: (belief.start, belief.end)):
        if belief.start == belief.end:
            continue
        if furthest is not None and belief.start < furthest.end:
            yield Violation(Rule.ONE_VALID_TERM, belief.name, (furthest, belief))
        if furthest is None or belief.end > furthest.end:
            furthest = belief


def _writes_not_granted(writes: Iterable[Wrote], epochs_granted: set[int]) -> Iterator[Violation]:
    for write in writes:
        if write.epoch not in epochs_granted:
            yield Violation(Rule.WRITES_ARE_GRANTED, write.name, (write,))


class HistoryWriter(AbstractContextManager["HistoryWriter"]):
    """Appends events to a file, for `load`. Processes and threads may share the file.

    Once `record` has returned, the event survives a kill -9 of any process. `record` raises OSError if the disk is
    full.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | CLOSE_ON_EXEC, 0o666)

    def record(self, event: Event) -> None:
        # The line break comes first: a kill can cut a write off at the end of a page, and the next process' line must
        # not continue that line.
        line = b"\n" + json.dumps({"kind": type(event).__name__.lower(), **asdict(event)}).encode()
        if os.write(self._file, line) != len(line):
            raise OSError("the history's disk is full: the last event is torn")

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def __exit__(self, *how: object) -> None:
        self.close()


def load(path: str | os.PathLike[str]) -> list[Event]:
    """Return all whole events of the file; lines that a kill cut off are left out.

    Raises ValueError for a wrong line.
    """
    events: list[Event] = []
    for number, line in enumerate(Path(path).read_bytes().split(b"\n"), start=1):
        if not line.strip():
            continue
        try:
            fields = json.loads(line)
        except ValueError as error:
            if line.startswith(b"{") and not line.rstrip().endswith(b"}"):
                continue
            raise ValueError(f"{path}, line {number}: not JSON: {line[:80]!r}") from error
        events.append(_event_of(fields, f"{path}, line {number}"))
    return events


def _event_of(fields: Any, where: str) -> Event:
    if not isinstance(fields, dict):
        raise ValueError(f"{where}: an event is an object, not {fields!r}")
    kind = fields.pop("kind", None)
    if kind not in _KINDS:
        raise ValueError(f"{where}: unknown kind of event {kind!r}; known: {', '.join(_KINDS)}")
    try:
        return _KINDS[kind](**fields)
    except TypeError as error:
        raise ValueError(f"{where}: {error}") from error


def main(arguments: Sequence[str]) -> int:
    """Judge a history file, print the violations and return the exit code.

    0: no violation; 1: there are violations, printed one per line; 2: the file cannot be judged.
    """
    if len(arguments) != 1:
        print("usage: python -m fencehold.testing.history FILE", file=sys.stderr)  # noqa: T201
        return 2
    try:
        history = load(arguments[0])
    except (OSError, ValueError) as error:
        print(error, file=sys.stderr)  # noqa: T201
        return 2
    violations = check(history)
    print(*violations, f"{len(history)} events, {len(violations)} violations", sep="\n")  # noqa: T201
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
