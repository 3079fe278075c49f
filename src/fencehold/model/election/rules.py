"""The rules of a named lease, as a table. Backends restate these rules; the conformance suite cites their ids.

A lease is live while `expires_at > now` and lapsed once `expires_at <= now`: at the exact instant of expiry another
holder may already take it.
"""

from __future__ import annotations

import datetime as dt
import enum
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from fencehold.model.election import places
from fencehold.model.election.places import Place


@dataclass(frozen=True)
class TermKey:
    """The identity of one term of one lease. A renewal, a release and a fence compare it with the row."""

    name: str
    holder_id: str
    epoch: int
    lease_s: float
    lease_id: str = field(default="", repr=False)  # as in Lease


@dataclass(frozen=True)
class Lease:
    """The row of one lease, as the store returned it; all times are from the store's clock."""

    name: str
    holder_id: str
    epoch: int
    acquired_at: dt.datetime
    renewed_at: dt.datetime
    expires_at: dt.datetime
    remaining_s: float
    step_down_requested: bool = False
    nonce: str = field(default="", repr=False)
    #: Created with the row and never changed: distinguishes it from a lease of the same name in another database.
    lease_id: str = field(default="", repr=False, compare=False)
    #: Where it was granted; a renewal and a release do not change it. A backend that restates the rules in SQL does
    #: not return it.
    place: Place = field(default=places.UNKNOWN, repr=False, compare=False)

    @property
    def is_live(self) -> bool:
        """Return whether the lease was live when the store answered."""
        return self.remaining_s > 0

    @property
    def is_released(self) -> bool:
        """Return whether its holder released the lease. A lease that lapsed instead was last renewed before its end."""
        return not self.is_live and self.renewed_at >= self.expires_at

    def key(self, lease_s: float) -> TermKey:
        return TermKey(self.name, self.holder_id, self.epoch, lease_s, self.lease_id)


@dataclass(frozen=True)
class Ask:
    """One request to acquire.

    If its answer is lost, a second try with the same nonce finds what the first try was granted.
    """

    name: str
    holder_id: str
    lease_s: float
    nonce: str


@dataclass(frozen=True)
class Refusal:
    """The answer to a request that the rules do not allow.

    `current`: the present row (None: no row, or not returned).
    """

    reason: str
    current: Lease | None = None


@dataclass(frozen=True)
class Busy:
    """The answer when the rules were not applied, because another session had locked the row.

    Nothing changed; ask again.
    """

    current: Lease | None = None


class Row(enum.Enum):
    ABSENT = "absent"
    LIVE = "live"
    LAPSED = "lapsed"


class Verb(enum.Enum):
    ACQUIRE = "acquire"
    RENEW = "renew"
    RELEASE = "release"
    ASK_STEP_DOWN = "ask_step_down"


@dataclass(frozen=True)
class Request:
    """The arguments of a verb, which the rules read. `now` is the store's clock, read after the row was locked."""

    name: str
    now: dt.datetime
    holder_id: str = ""
    epoch: int = 0
    lease_s: float = 0.0
    nonce: str = ""
    place: Place = places.UNKNOWN
    #: Where the table was created: the first epoch of a name without a row is computed from it.
    origin: Place = places.UNKNOWN


When = Callable[["Lease | None", Request], bool]
Then = Callable[["Lease | None", Request], Lease]


@dataclass(frozen=True)
class Rule:
    source: Row
    on: Verb
    when: When
    target: Row
    then: Then

    @property
    def id(self) -> str:
        return f"{self.source.value}.{self.on.value}.{self.when.__name__}"


def always(row: Lease | None, request: Request) -> bool:
    return True


def is_same_request(row: Lease | None, request: Request) -> bool:
    return row is not None and bool(request.nonce) and (row.nonce, row.holder_id) == (request.nonce, request.holder_id)


def is_holder(row: Lease | None, request: Request) -> bool:
    return row is not None and (row.holder_id, row.epoch) == (request.holder_id, request.epoch)


def is_epoch(row: Lease | None, request: Request) -> bool:
    return row is not None and row.epoch == request.epoch


def grant(row: Lease | None, request: Request) -> Lease:
    last = row.place if row else request.origin
    epoch = places.next_epoch(row.epoch if row else None, last, request.place)
    until = request.now + dt.timedelta(seconds=request.lease_s)
    now = request.now
    return Lease(
        request.name, request.holder_id, epoch, now, now, until, request.lease_s, step_down_requested=False,
        nonce=request.nonce, place=places.recorded(last, request.place),
    )  # fmt: skip


def keep(row: Lease | None, request: Request) -> Lease:
    return _present(row)


def extend(row: Lease | None, request: Request) -> Lease:
    until = request.now + dt.timedelta(seconds=request.lease_s)
    return replace(_present(row), renewed_at=request.now, expires_at=until)


def expire(row: Lease | None, request: Request) -> Lease:
    """Return the lease with its end set to now, and `renewed_at` set to the same time.

    So `is_released` can tell it from a lease that lapsed.
    """
    return replace(_present(row), renewed_at=request.now, expires_at=request.now)


def mark(row: Lease | None, request: Request) -> Lease:
    return replace(_present(row), step_down_requested=True)


def _present(row: Lease | None) -> Lease:
    assert row is not None, "the rule table sends only existing rows here"
    return row


RULES: tuple[Rule, ...] = (
    #    from        on                  when             to          then
    Rule(Row.ABSENT, Verb.ACQUIRE,       always,          Row.LIVE,   grant),
    Rule(Row.LAPSED, Verb.ACQUIRE,       always,          Row.LIVE,   grant),
    Rule(Row.LIVE,   Verb.ACQUIRE,       is_same_request, Row.LIVE,   keep),
    Rule(Row.LIVE,   Verb.RENEW,         is_holder,       Row.LIVE,   extend),
    Rule(Row.LIVE,   Verb.RELEASE,       is_holder,       Row.LAPSED, expire),
    Rule(Row.LIVE,   Verb.ASK_STEP_DOWN, is_epoch,        Row.LIVE,   mark),
)  # fmt: skip


def row_state(row: Lease | None, now: dt.datetime) -> Row:
    if row is None:
        return Row.ABSENT
    return Row.LIVE if row.expires_at > now else Row.LAPSED


def decide(row: Lease | None, verb: Verb, request: Request) -> Rule | None:
    """Return the one rule that applies; None if the verb is refused."""
    state = row_state(row, request.now)
    return next((r for r in RULES if (r.source, r.on) == (state, verb) and r.when(row, request)), None)


def refusal_reason(row: Lease | None, now: dt.datetime) -> str:
    """Return why a renewal or a release was refused, as one word for logs."""
    match row_state(row, now):
        case Row.ABSENT:
            return "absent"
        case Row.LAPSED:
            return "lapsed"
        case Row.LIVE:
            return "held_by_another"
