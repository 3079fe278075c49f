"""Computes the next epoch from the last one and from where the two grants are made. PostgreSQL restates these rules.

A promoted standby may lack the last grants of the old primary, and would grant their epochs again. But it writes on a
new timeline, with a higher number. So within one timeline an epoch rises by one. The first epoch on a later timeline
jumps by EPOCH_JUMP, which is more than the grants that can have been lost. It jumps once for each timeline number in
between, because each of them may have been a primary whose grants were all lost.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

EPOCH_JUMP = 1_000_000
#: All items take their tokens from one sequence, so many more tokens can be lost than epochs of one lease.
TOKEN_JUMP = 1_000_000_000


@dataclass(frozen=True)
class Place:
    """Where a grant is made: the timeline of the server's log, and the identifier of its system. None: not known."""

    timeline: int | None = None
    system: int | None = None


#: For databases that have no timelines, and for servers that do not report theirs.
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
    """Whether both places are the same. An unknown system counts as the same system."""
    return last.timeline == now.timeline and (last.system == now.system or None in (last.system, now.system))


def is_ahead(last: Place, now: Place) -> bool:
    return last.timeline is not None and now.timeline is not None and now.timeline > last.timeline


def is_elsewhere(last: Place, now: Place) -> bool:
    """True for the rest: an earlier timeline or another system, after an upgrade of the server or a restored copy."""
    return True


def none(last: Place, now: Place) -> int:
    return 0


def one_each(last: Place, now: Place) -> int:
    return (now.timeline or 0) - (last.timeline or 0)


def one(last: Place, now: Place) -> int:
    return 1


#: The first rule that applies counts.
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
    """Return the epoch after `epoch`, which was granted at `last`.

    `epoch` None: the name has no row yet; `last` is then where the table was created.
    """
    lift = EPOCH_JUMP * decide(last, now).jumps(last, now)
    return 1 + lift if epoch is None else epoch + (lift or 1)


def recorded(last: Place, now: Place) -> Place:
    """Return the place to store in the row. What is not known now keeps its last value."""
    if now.timeline is None:
        return last
    return Place(now.timeline, last.system if now.system is None else now.system)
