"""The rules of an election as a table: from which state, on which input, to which state, with which callbacks.

The table is the same for a lease row and for a database lock. A row whose `when` is `always` applies in every case. The
other rows come in groups, and the rows of a group cover all cases. `emits` are the callbacks to call, in this order.
The comment beside a row is its number in the table of spec 002.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass


class LockState(enum.Enum):
    STOPPED = "stopped"
    FOLLOWER = "follower"
    ACQUIRING = "acquiring"
    LEADER = "leader"
    RECONNECTING = "reconnecting"
    RELEASING = "releasing"


class Input(enum.Enum):
    START = "start"
    STOP_REQUESTED = "stop_requested"
    ACQUIRE_ATTEMPT = "acquire_attempt"
    ACQUIRE_SUCCEEDED = "acquire_succeeded"
    ACQUIRE_FAILED = "acquire_failed"
    DB_ERROR = "db_error"
    HEALTH_OK = "health_ok"
    HEALTH_FAILED = "health_failed"
    REACQUIRE_SUCCEEDED = "reacquire_succeeded"
    REACQUIRE_FAILED = "reacquire_failed"
    GRACE_EXPIRED = "grace_expired"
    RELEASE_REQUESTED = "release_requested"
    RELEASE_SUCCEEDED = "release_succeeded"
    RELEASE_FAILED = "release_failed"
    RELEASE_UNANSWERED = "release_unanswered"
    GAVE_UP = "gave_up"
    CUT_OFF = "cut_off"  # the task that runs the election was cancelled, or raised an error


class Emit(enum.Enum):
    ACQUIRED = "on_acquired"
    RELEASED = "on_released"
    LOST = "on_lost"
    ACQUIRE_FAILED = "on_acquire_failed"
    ERROR = "on_error"
    STOPPED = "on_stopped"


@dataclass(frozen=True)
class Circumstances:
    """What decides, besides the state and the input, which row of the table applies: it is passed to a row's `when`."""

    auto_reacquire: bool = True
    has_grace: bool = False
    stepping_down: bool = False
    new_term: bool = False


When = Callable[[Circumstances], bool]


def always(c: Circumstances) -> bool:
    return True


def goes_on(c: Circumstances) -> bool:
    return c.auto_reacquire


def gives_up(c: Circumstances) -> bool:
    return not c.auto_reacquire


def has_grace(c: Circumstances) -> bool:
    return c.has_grace


def no_grace_goes_on(c: Circumstances) -> bool:
    return not c.has_grace and c.auto_reacquire


def no_grace_gives_up(c: Circumstances) -> bool:
    return not c.has_grace and not c.auto_reacquire


def same_term(c: Circumstances) -> bool:
    return not c.new_term


def new_term(c: Circumstances) -> bool:
    return c.new_term


def steps_down_and_goes_on(c: Circumstances) -> bool:
    return c.stepping_down and c.auto_reacquire


def ends(c: Circumstances) -> bool:
    return not (c.stepping_down and c.auto_reacquire)


@dataclass(frozen=True)
class Row:
    source: LockState
    on: Input
    when: When
    target: LockState
    emits: tuple[Emit, ...]

    @property
    def id(self) -> str:
        return f"{self.source.value}.{self.on.value}.{self.when.__name__}"


S, IN, E = LockState, Input, Emit

TABLE: tuple[Row, ...] = (
    #   from            on                     when                    to              emits                    spec row
    Row(S.STOPPED,      IN.START,              always,                 S.FOLLOWER,     ()),                     # 1
    Row(S.FOLLOWER,     IN.ACQUIRE_ATTEMPT,     always,                 S.ACQUIRING,    ()),                     # 2
    Row(S.FOLLOWER,     IN.STOP_REQUESTED,      always,                 S.STOPPED,      (E.STOPPED,)),           # 3
    Row(S.FOLLOWER,     IN.GAVE_UP,             always,                 S.STOPPED,      (E.STOPPED,)),           # 4.5
    Row(S.ACQUIRING,    IN.ACQUIRE_SUCCEEDED,   always,                 S.LEADER,       (E.ACQUIRED,)),          # 4
    Row(S.ACQUIRING,    IN.ACQUIRE_FAILED,      always,                 S.FOLLOWER,     (E.ACQUIRE_FAILED,)),    # 5
    Row(S.ACQUIRING,    IN.DB_ERROR,            goes_on,                S.FOLLOWER,     (E.ERROR,)),             # 6
    Row(S.ACQUIRING,    IN.DB_ERROR,            gives_up,               S.STOPPED,      (E.ERROR, E.STOPPED)),   # 6
    Row(S.ACQUIRING,    IN.STOP_REQUESTED,      always,                 S.STOPPED,      (E.STOPPED,)),           # 7
    Row(S.LEADER,       IN.HEALTH_OK,           always,                 S.LEADER,       ()),                     # 8
    Row(S.LEADER,       IN.HEALTH_FAILED,       has_grace,              S.RECONNECTING, ()),                     # 9
    Row(S.LEADER,       IN.HEALTH_FAILED,       no_grace_goes_on,       S.FOLLOWER,     (E.LOST,)),              # 9
    Row(S.LEADER,       IN.HEALTH_FAILED,       no_grace_gives_up,      S.STOPPED,      (E.LOST, E.STOPPED)),    # 9
    Row(S.LEADER,       IN.DB_ERROR,            has_grace,              S.RECONNECTING, (E.ERROR,)),             # 9
    Row(S.LEADER,       IN.DB_ERROR,            no_grace_goes_on,       S.FOLLOWER,     (E.LOST, E.ERROR)),      # 9
    Row(S.LEADER,       IN.DB_ERROR,            no_grace_gives_up,      S.STOPPED,      (E.LOST, E.ERROR, E.STOPPED)),
    Row(S.LEADER,       IN.STOP_REQUESTED,      always,                 S.RELEASING,    ()),                     # 10
    Row(S.LEADER,       IN.RELEASE_REQUESTED,   always,                 S.RELEASING,    ()),                     # 11
    Row(S.RECONNECTING, IN.REACQUIRE_SUCCEEDED, same_term,              S.LEADER,       ()),                     # 12
    Row(S.RECONNECTING, IN.REACQUIRE_SUCCEEDED, new_term,               S.LEADER,       (E.LOST, E.ACQUIRED)),   # 12
    Row(S.RECONNECTING, IN.REACQUIRE_FAILED,    goes_on,                S.FOLLOWER,     (E.LOST,)),              # 13
    Row(S.RECONNECTING, IN.REACQUIRE_FAILED,    gives_up,               S.STOPPED,      (E.LOST, E.STOPPED)),    # 13
    Row(S.RECONNECTING, IN.GRACE_EXPIRED,       goes_on,                S.FOLLOWER,     (E.LOST,)),              # 14
    Row(S.RECONNECTING, IN.GRACE_EXPIRED,       gives_up,               S.STOPPED,      (E.LOST, E.STOPPED)),    # 14
    Row(S.RECONNECTING, IN.STOP_REQUESTED,      always,                 S.STOPPED,      (E.STOPPED,)),           # 15
    Row(S.RELEASING,    IN.RELEASE_SUCCEEDED,   steps_down_and_goes_on, S.FOLLOWER,     (E.RELEASED,)),          # 16
    Row(S.RELEASING,    IN.RELEASE_SUCCEEDED,   ends,                   S.STOPPED,      (E.RELEASED, E.STOPPED)),
    Row(S.RELEASING,    IN.RELEASE_UNANSWERED,  steps_down_and_goes_on, S.FOLLOWER,     (E.LOST, E.ERROR)),      # 16
    Row(S.RELEASING,    IN.RELEASE_UNANSWERED,  ends,                   S.STOPPED,      (E.LOST, E.ERROR, E.STOPPED)),
    Row(S.RELEASING,    IN.RELEASE_FAILED,      always,                 S.STOPPED,      (E.ERROR, E.STOPPED)),   # 17
    Row(S.RELEASING,    IN.DB_ERROR,            always,                 S.STOPPED,      (E.ERROR, E.STOPPED)),   # 17
    Row(S.FOLLOWER,     IN.CUT_OFF,             always,                 S.STOPPED,      (E.STOPPED,)),
    Row(S.ACQUIRING,    IN.CUT_OFF,             always,                 S.STOPPED,      (E.STOPPED,)),
    Row(S.LEADER,       IN.CUT_OFF,             always,                 S.STOPPED,      (E.LOST, E.STOPPED)),
    Row(S.RECONNECTING, IN.CUT_OFF,             always,                 S.STOPPED,      (E.LOST, E.STOPPED)),
    Row(S.RELEASING,    IN.CUT_OFF,             always,                 S.STOPPED,      (E.LOST, E.STOPPED)),
)  # fmt: skip


def transition(state: LockState, on: Input, circumstances: Circumstances) -> Row | None:
    """Return the one row of the table that applies; None if the input has no effect in this state."""
    return next((r for r in TABLE if (r.source, r.on) == (state, on) and r.when(circumstances)), None)
