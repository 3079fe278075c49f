"""Attempts under way: the phase of each, how many each gateway has, and those left unrecorded."""

from __future__ import annotations

import asyncio
import enum
from collections import Counter, deque
from typing import Any

from fencehold.service import Clock
from submission_manager.executor.tenure import Tenure
from submission_manager.model.outcomes import Outcome
from submission_manager.ports import Started
from submission_manager.schedule.schedule import Job

PUT_OFF_MAX = 16  # at most so many records wait for a lock without taking a place; any more keep their places
LOST_MAX = 1000
NOTHING_YET = "nothing yet"


class Phase(enum.Enum):
    START = "start"
    CALL = "call"  # the provider may have received it: never cancelled because of the lease
    RECORD = "record"


class Running:
    """One attempt under way: its intent, its term, and how far it has come."""

    def __init__(self, job: Job, tenure: Tenure) -> None:
        self.job = job
        self.tenure = tenure
        self.phase = Phase.START
        self.task: asyncio.Task[None] | None = None
        self.started: Started | None = None
        self.outcome: Outcome | None = None
        self.is_abandoned = False  # its term is over
        self.is_fenced_out = False  # and so nothing of it is written
        self.has_place = True

    @property
    def is_made(self) -> bool:
        """Whether the provider may have received the call."""
        return self.phase is not Phase.START

    @property
    def key(self) -> str | None:
        return None if self.started is None else self.started.key

    def received(self) -> str:
        """Return the gateway's answer as a text for the log."""
        if self.outcome is None:
            return NOTHING_YET
        said = self.outcome.reason or self.outcome.error
        return f"{self.outcome.answer.value}: {said}" if said else self.outcome.answer.value

    def fields(self) -> dict[str, Any]:
        """Return the fields that identify this attempt in a log line."""
        number = None if self.started is None else self.started.attempt_number
        received = self.received() if self.is_made else None
        return {"intent_id": self.job.intent_id, "attempt_number": number, "key": self.key, "received": received}


class InHand:
    """The attempts under way, with a maximum for each gateway and for all gateways together.

    It counts the attempts of all terms, because a call of an earlier term that hangs still counts at its gateway.
    """

    def __init__(self, at_a_gateway: int, in_all: int, clock: Clock) -> None:
        self._at_a_gateway, self._in_all, self._clock = at_a_gateway, in_all, clock
        self._running: set[Running] = set()
        self._places: Counter[str] = Counter()
        self._lost: deque[tuple[float, Running]] = deque(maxlen=LOST_MAX)
        self.idle = asyncio.Event()
        self.idle.set()

    def __len__(self) -> int:
        return len(self._running)

    def all(self) -> list[Running]:
        """Return all attempts under way, sorted by intent id. Safe to call from any thread."""
        return sorted(self._running.copy(), key=lambda one: one.job.intent_id)

    def of(self, tenure: Tenure) -> list[Running]:
        return [one for one in self._running if one.tenure is tenure]

    def begin(self, running: Running) -> None:
        self._running.add(running)
        self._places[running.job.lane] += 1
        self.idle.clear()

    def end(self, running: Running) -> None:
        self._running.discard(running)
        if running.has_place:
            self._leave_place(running)
        if not self._running:
            self.idle.set()

    def put_off(self, running: Running) -> None:
        """Let another attempt begin in place of this one, whose record waits for another session's lock.

        Does nothing if PUT_OFF_MAX attempts wait like this already.
        """
        waiting = sum(not one.has_place for one in self._running)
        if running.has_place and waiting < PUT_OFF_MAX:
            running.has_place = False
            self._leave_place(running)

    def load(self, lane: str) -> int | None:
        """Return how many attempts are under way at a gateway (`lane`); None if there is no room for another."""
        under_way = self._places[lane]
        is_full = self._places.total() >= self._in_all or under_way >= self._at_a_gateway
        return None if is_full else under_way

    def lost(self, running: Running) -> None:
        """Remember an attempt that was made but whose outcome is not recorded."""
        self._lost.append((self._clock.now_s(), running))

    def lost_since(self, when_s: float) -> list[Running]:
        return [one for at_s, one in self._lost.copy() if at_s >= when_s]

    def _leave_place(self, running: Running) -> None:
        lane = running.job.lane
        self._places[lane] -= 1
        if not self._places[lane]:
            del self._places[lane]
