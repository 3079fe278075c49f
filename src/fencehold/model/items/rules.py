"""The rules of an item and its lease, as a table. Backends restate these rules; the tests cite their ids.

A lease is live while `expires_at > now` and lapsed once `expires_at <= now`: then the item is free, as if nobody had
ever held it. Every lease has a new token, larger than all earlier tokens of that item, also after the item was deleted
and put again. So a holder that lost the item, even to a later lease of its own process, cannot write it.
"""

from __future__ import annotations

import datetime as dt
import enum
from collections.abc import Callable
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class ItemKey:
    """The identity of one lease on one item. A renewal, a save, a delete and a break compare it with the row.

    Token 0 in a break stands for any lease of this holder.
    """

    id: str
    holder_id: str
    token: int


@dataclass(frozen=True, slots=True)
class StoredItem:
    """The columns of one item.

    `token` is that of its last lease (0: never leased); `holder_id` None: nobody leases it.
    """

    state: str
    state_timestamp: dt.datetime
    document: str
    token: int = 0
    holder_id: str | None = None
    leased_at: dt.datetime | None = None
    lease_s: float = 0.0
    expires_at: dt.datetime | None = None


class Row(enum.Enum):
    ABSENT = "absent"
    FREE = "free"
    LIVE = "live"


class Verb(enum.Enum):
    PUT = "put"
    ACQUIRE = "acquire"
    RENEW = "renew"
    BREAK = "break"
    SAVE = "save"
    DELETE = "delete"
    NEXT = "next"


@dataclass(frozen=True, slots=True)
class Request:
    """The arguments of a verb, which the rules read. `now` is the store's clock, read after the row was locked.

    `next_token` is larger than every token this item ever had. A state or document that is None is not changed.
    """

    now: dt.datetime
    holder_id: str = ""
    token: int = 0
    next_token: int = 0
    lease_s: float = 0.0
    state: str | None = None
    document: str | None = None


When = Callable[["StoredItem | None", Request], bool]
Then = Callable[["StoredItem | None", Request], "StoredItem | None"]


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


def always(row: StoredItem | None, request: Request) -> bool:
    return True


def is_own(row: StoredItem | None, request: Request) -> bool:
    return row is not None and row.holder_id == request.holder_id


def is_holder(row: StoredItem | None, request: Request) -> bool:
    return row is not None and (row.holder_id, row.token) == (request.holder_id, request.token)


def is_own_lease(row: StoredItem | None, request: Request) -> bool:
    return is_own(row, request) and request.token in (0, _present(row).token)


def is_in_state(row: StoredItem | None, request: Request) -> bool:
    return row is not None and row.state == request.state


def create(row: StoredItem | None, request: Request) -> StoredItem:
    assert request.state is not None, "a put names a state"
    assert request.document is not None, "a put brings a document"
    return StoredItem(request.state, request.now, request.document)


def write(row: StoredItem | None, request: Request) -> StoredItem:
    """Return the item with its state and document changed.

    A given state, even the same one, moves the item to the end of the queue of items in that state.
    """
    kept = _present(row)
    if request.state is not None:
        kept = replace(kept, state=request.state, state_timestamp=request.now)
    if request.document is not None:
        kept = replace(kept, document=request.document)
    return kept


def grant(row: StoredItem | None, request: Request) -> StoredItem:
    until = request.now + dt.timedelta(seconds=request.lease_s)
    return replace(
        _present(row), token=request.next_token, holder_id=request.holder_id, leased_at=request.now,
        lease_s=request.lease_s, expires_at=until,
    )  # fmt: skip


def extend(row: StoredItem | None, request: Request) -> StoredItem:
    until = request.now + dt.timedelta(seconds=request.lease_s)
    return replace(_present(row), lease_s=request.lease_s, expires_at=until)


def free(row: StoredItem | None, request: Request) -> StoredItem:
    return replace(_present(row), holder_id=None, leased_at=None, lease_s=0.0, expires_at=None)


def keep(row: StoredItem | None, request: Request) -> StoredItem | None:
    return row


def remove(row: StoredItem | None, request: Request) -> None:
    return None


def _present(row: StoredItem | None) -> StoredItem:
    assert row is not None, "the rule table sends only existing items here"
    return row


RULES: tuple[Rule, ...] = (
    #    from        on            when          to          then
    Rule(Row.ABSENT, Verb.PUT,     always,       Row.FREE,   create),
    Rule(Row.FREE,   Verb.PUT,     always,       Row.FREE,   write),
    Rule(Row.LIVE,   Verb.PUT,     is_own,       Row.LIVE,   write),
    Rule(Row.FREE,   Verb.ACQUIRE, always,       Row.LIVE,   grant),
    Rule(Row.LIVE,   Verb.ACQUIRE, is_own,       Row.LIVE,   grant),
    Rule(Row.LIVE,   Verb.RENEW,   is_holder,    Row.LIVE,   extend),
    Rule(Row.ABSENT, Verb.BREAK,   always,       Row.ABSENT, keep),
    Rule(Row.FREE,   Verb.BREAK,   always,       Row.FREE,   keep),
    Rule(Row.LIVE,   Verb.BREAK,   is_own_lease, Row.FREE,   free),
    Rule(Row.LIVE,   Verb.SAVE,    is_holder,    Row.LIVE,   write),
    Rule(Row.LIVE,   Verb.DELETE,  is_holder,    Row.ABSENT, remove),
    Rule(Row.FREE,   Verb.NEXT,    is_in_state,  Row.LIVE,   grant),
)  # fmt: skip


def row_state(row: StoredItem | None, now: dt.datetime) -> Row:
    if row is None:
        return Row.ABSENT
    is_live = row.holder_id is not None and row.expires_at is not None and row.expires_at > now
    return Row.LIVE if is_live else Row.FREE


def decide(row: StoredItem | None, verb: Verb, request: Request) -> Rule | None:
    """Return the one rule that applies; None if the verb is refused."""
    state = row_state(row, request.now)
    return next((r for r in RULES if (r.source, r.on) == (state, verb) and r.when(row, request)), None)


ABSENT, LAPSED, HELD_BY_ANOTHER = "absent", "lapsed", "held_by_another"


def refusal_reason(row: StoredItem | None, now: dt.datetime) -> str:
    """Return why a verb was refused, as one word for logs and errors."""
    return {Row.ABSENT: ABSENT, Row.FREE: LAPSED, Row.LIVE: HELD_BY_ANOTHER}[row_state(row, now)]
