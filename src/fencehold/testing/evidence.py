"""The evidence of a run of `fencehold verify`, for the judge: plain values, in the order in which they happened.

It has two independent sources: rows that triggers of the database wrote in the transaction of the change itself, and
the answers that processes reported. A change that the database lost (at a promotion of a standby, say) is still in the
reported answers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum

from fencehold.testing.history import Believed, Granted


@dataclass(frozen=True, slots=True)
class LeaseChange:
    """One change of a lease's row: made, given to another holder or epoch, renewed after its end, or deleted.

    After a delete `epoch` is None. `was_live`: the old lease had not ended when the new one began, by the store's own
    times.
    """

    name: str
    was_holder: str | None
    was_epoch: int | None
    was_live: bool
    holder: str | None
    epoch: int | None


@dataclass(frozen=True, slots=True)
class FencedWrite:
    """A fenced write that was committed. `epoch_seen` is the lease's epoch as the write's own transaction read it."""

    name: str
    commit_order: int
    holder_id: str
    epoch: int
    epoch_seen: int | None
    write_id: str


@dataclass(frozen=True, slots=True)
class ToldWrite:
    """The answer that a writer got to a fenced write: True accepted, False refused.

    None: there was no answer, so the write may have been accepted or refused.
    """

    write_id: str
    name: str
    epoch: int
    was_accepted: bool | None


class Verb(Enum):
    """The kinds of requests that a process tried after it had lost the lease, the claim or the item."""

    WRITE = "a fenced write"
    RENEW = "a renewal"
    RELEASE = "a release"
    COMPLETE = "a completion"
    SAVE = "a save"


@dataclass(frozen=True, slots=True)
class StaleTry:
    """A request that a process tried after it had seen that its lease had ended, or that another process has it."""

    verb: Verb
    what: str  # the lease, event or item
    holder_id: str
    token: str  # its epoch or token
    seen: str  # what it had seen instead
    was_accepted: bool


@dataclass(frozen=True, slots=True)
class EventChange:
    """One update of an event's row. `was_live`: the old claim had not ended.

    `is_counted`: the update counts one more try.
    """

    tracking_id: str
    was_status: str
    was_token: str | None
    was_live: bool
    status: str | None  # None: the row was deleted
    token: str | None
    is_counted: bool = False


@dataclass(frozen=True, slots=True)
class ItemChange:
    """One update of an item's row. `was_live`: the old lease had not ended.

    `written_token` is the token that the saver wrote into the document; None: the document has no token.
    """

    item_id: str
    was_holder: str | None
    was_token: int
    was_live: bool
    holder: str | None
    token: int
    is_save: bool
    written_token: int | None


@dataclass
class Evidence:
    """All evidence of one run. Sequences of changes are in the order in which the database made them."""

    grants: Sequence[Granted] = ()  # as answered to the holders
    beliefs: Sequence[Believed] = ()  # of leaders: while `is_valid` was true
    lease_changes: Sequence[LeaseChange] = ()
    #: Leases whose next epoch belongs to the holder of a lock, even while the epoch before is still live.
    seized: frozenset[str] = frozenset()
    writes: Sequence[FencedWrite] = ()
    told_writes: Sequence[ToldWrite] = ()
    counters: dict[str, int] = field(default_factory=dict)
    stale_tries: Sequence[StaleTry] = ()
    events_added: Sequence[str] = ()
    events_there: dict[str, str] = field(default_factory=dict)  # id: status, at the end
    event_changes: Sequence[EventChange] = ()
    item_changes: Sequence[ItemChange] = ()
    lock_beliefs: Sequence[Believed] = ()  # of advisory locks: while `is_leader` was seen true
