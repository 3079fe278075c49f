"""Computes the next epoch from the last epoch and from the places of the two grants.

PostgreSQL's SQL has the same rules. A place is where a grant is made: the timeline and the system identifier of a
PostgreSQL server.

A promoted standby may lack the last grants of the old primary, and would grant the same epochs again. But it writes on
a new timeline, which has a higher number. So an epoch rises by one within one timeline, and by EPOCH_JUMP at the first
grant on a later timeline; EPOCH_JUMP is more than the grants that can have been lost. It rises by EPOCH_JUMP once for
each timeline number in between, because each of these may have been a primary whose grants were all lost.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

EPOCH_JUMP = 1_000_000
#: All items take their tokens from one sequence, so many more tokens can be lost than epochs of one lease.
TOKEN_JUMP = 1_000_000_000


@dataclass(frozen=True)
class Place:
    """Where a grant is made: the timeline of the server's log, and the server's system identifier. None: not known."""

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
    """Return whether both places are the same. A system that is not known counts as the same system."""
    return last.timeline == now.timeline and (last.system == now.system or None in (last.system, now.system))


def is_ahead(last: Place, now: Place) -> bool:
    return last.timeline is not None and now.timeline is not None and now.timeline > last.timeline


def is_elsewhere(last: Place, now: Place) -> bool:
    """Always return True: the last rule, for what the rules before it leave.

    It leaves an earlier timeline, or another system: after an upgrade of the server, or in a restored copy.
    """
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
    """Return the epoch to grant at `now`, after `epoch` was granted at `last`.

    `epoch` None: the name has no row yet, and `last` is where the table was created.
    """
    lift = EPOCH_JUMP * decide(last, now).jumps(last, now)
    return 1 + lift if epoch is None else epoch + (lift or 1)


def recorded(last: Place, now: Place) -> Place:
    """Return the place to store in the row: `now`, with each part that is not known now taken from `last`."""
    if now.timeline is None:
        return last
    return Place(now.timeline, last.system if now.system is None else now.system)
