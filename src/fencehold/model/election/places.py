"""How far the next epoch is from the last one, by where the two grants are made. Written once; PostgreSQL restates it.

A standby that is promoted may not have the last grants of the primary before it, and would give their epochs out again.
But it writes on a timeline of its own, with a higher number. So within one timeline an epoch rises by one, and the
first one on another jumps: by more than anybody can have been granted unseen, and once for each number in between,
since every one of them may have been a primary whose grants were all lost.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

EPOCH_JUMP = 1_000_000
#: All items draw their tokens from one sequence: many more may be lost than epochs of one lease.
TOKEN_JUMP = 1_000_000_000


@dataclass(frozen=True)
class Place:
    """Where a grant is made: on which timeline of the log, in which system's data. None: not known."""

    timeline: int | None = None
    system: int | None = None


#: Of databases that know no timelines, and of servers that do not tell theirs.
UNKNOWN = Place()

When = Callable[[Place, Place], bool]
Then = Callable[[Place, Place], int]


@dataclass(frozen=True)
class PlaceRule:
    when: When
    jumps: Then

    @property
    def id(self) -> str:
        return f"place.{self.when.__name__}"


def is_unknown(last: Place, now: Place) -> bool:
    return last.timeline is None or now.timeline is None


def is_same(last: Place, now: Place) -> bool:
    """A system that is not known is taken for the same."""
    return last.timeline == now.timeline and (last.system == now.system or None in (last.system, now.system))


def is_ahead(last: Place, now: Place) -> bool:
    return last.timeline is not None and now.timeline is not None and now.timeline > last.timeline


def is_elsewhere(last: Place, now: Place) -> bool:
    """An earlier timeline, or another system's: an upgrade of the server, or a copy of the data that was restored."""
    return True


def none(last: Place, now: Place) -> int:
    return 0


def one_each(last: Place, now: Place) -> int:
    return (now.timeline or 0) - (last.timeline or 0)


def one(last: Place, now: Place) -> int:
    return 1


#: The first one that applies.
RULES: tuple[PlaceRule, ...] = (
    #         when          jumps
    PlaceRule(is_unknown,   none),
    PlaceRule(is_same,      none),
    PlaceRule(is_ahead,     one_each),
    PlaceRule(is_elsewhere, one),
)  # fmt: skip


def decide(last: Place, now: Place) -> PlaceRule:
    return next(rule for rule in RULES if rule.when(last, now))


def next_epoch(epoch: int | None, last: Place, now: Place) -> int:
    """Of a lease that had `epoch`, granted at `last`; None: of a name without a row, in a table that was made there."""
    lift = EPOCH_JUMP * decide(last, now).jumps(last, now)
    return 1 + lift if epoch is None else epoch + (lift or 1)


def recorded(last: Place, now: Place) -> Place:
    """What the row keeps of where it was granted: what is not known now leaves what was."""
    if now.timeline is None:
        return last
    return Place(now.timeline, last.system if now.system is None else now.system)
