"""Reads leases for followers and observers, who do not hold them: one batched read for any number of leases.

Only the reads are relied on: one at each poll interval and at the earliest known expiry. A hint, which is a
notification from the database that may fail to come, only makes the next read earlier.
"""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fencehold.model.election.rules import Lease
from fencehold.model.errors import FenceholdError
from fencehold.ports.clock import Clock
from fencehold.ports.fact_table import OutageFacts
from fencehold.ports.facts import FactSink
from fencehold.ports.leases import LeasePort
from fencehold.ports.wakeup import ACQUIRED, ASKED, UNKNOWN, WakeupPort
from fencehold.runtime.core.repeated_failures import Outage

READ_LIMIT_S = 5.0
READ_LIMIT_S_MIN = 0.2
EXPIRY_SLACK_S = 0.002  # so that a store whose clock has milliseconds is past the expiry
TROUBLE_PAUSE_S = 1.0


class News(enum.Enum):
    SEEN = "seen"  # the row as just read (None: no such row yet)
    FREED = "freed"  # a hint that it was released: try to acquire it
    CHANGED = "changed"  # a hint that another holder has acquired it
    CLOSED = "closed"  # the store is closed; nothing follows


Hear = Callable[[News, Lease | None], None]


@dataclass(eq=False)
class Follow:
    """One follower or observer of one lease; `hear` is called with each news of the lease, on the keeper's loop.

    `wants_changes`: True for an observer: at each hint the lease is read. False for a follower: it gets the hint
    itself.
    """

    name: str
    poll_every_s: float
    hear: Hear
    wants_changes: bool = False
    expiry_s: float = field(default=0.0)


class FollowersFacts(OutageFacts):
    """The facts of an outage that followers meet, with the names of the leases that are followed at that moment."""

    def __init__(self, sink: FactSink, follows: Sequence[Follow]) -> None:
        super().__init__(sink)
        self._follows = follows

    def about(self) -> Mapping[str, Any]:
        return {"following": sorted({follow.name for follow in self._follows})}


class Watch:
    """Reads the leases that are followed, tells the followers, and logs when the store stops answering.

    A follower sends no other request, so without this log line it would wait unnoticed.
    """

    def __init__(
        self, port: LeasePort, wakeup: WakeupPort, clock: Clock, facts: FactSink, on_asked: Callable[[str], None]
    ) -> None:
        self._port = port
        self._clock = clock
        self._has_read = False  # until then the candidates' own attempts log what is wrong
        self._on_asked = on_asked
        self._follows: list[Follow] = []
        self._outage = Outage(FollowersFacts(facts, self._follows), clock)
        self._due_s = 0.0
        self._wake = asyncio.Event()
        self._closed = False
        wakeup.on_hint(self._hint)

    async def run(self) -> None:
        while not self._closed:
            await self._clock.wait(self._wake, self._next_s())
            self._wake.clear()
            if self._follows and self._clock.now_s() >= self._due_s:
                await self._look()

    def follow(self, follow: Follow) -> None:
        self._follows.append(follow)
        self._hurry()

    def unfollow(self, follow: Follow) -> None:
        if follow in self._follows:
            self._follows.remove(follow)

    def saw(self, name: str, lease: Lease | None) -> None:
        """Use what another request found of this lease, such as a refused acquire: that saves a read."""
        expiry_s = self._expiry_s(lease)
        for follow in self._follows:
            if follow.name == name:
                follow.expiry_s = expiry_s
        self._due_s = min(self._due_s, expiry_s)
        self._wake.set()

    def close(self) -> None:
        self._closed = True
        self._wake.set()
        for follow in self._follows:
            follow.hear(News.CLOSED, None)

    def _next_s(self) -> float | None:
        return max(0.0, self._due_s - self._clock.now_s()) if self._follows else None

    def _hurry(self) -> None:
        self._due_s = self._clock.now_s()
        self._wake.set()

    async def _look(self) -> None:
        names = {follow.name for follow in self._follows}
        # Set before the read, so that a request for a read during this one causes another.
        self._due_s = self._clock.now_s() + self._poll_s()
        try:
            # At most a poll interval, because renewals wait for the same connection.
            limit_s = min(READ_LIMIT_S, max(READ_LIMIT_S_MIN, self._poll_s()))
            rows = await self._port.read(sorted(names), limit_s)
        except FenceholdError as error:
            self._due_s = min(self._due_s, self._clock.now_s() + TROUBLE_PAUSE_S)
            if self._has_read and self._follows:  # else nobody waits for it any more
                self._outage.failed(error)
            return
        self._has_read = True
        self._outage.answered()
        # Only the names that were read: a name followed since then is not in `rows`, which does not mean no lease.
        for follow in [f for f in self._follows if f.name in names]:
            lease = rows.get(follow.name)
            follow.expiry_s = self._expiry_s(lease)
            self._due_s = min(self._due_s, follow.expiry_s)
            follow.hear(News.SEEN, lease)

    def _poll_s(self) -> float:
        return min((follow.poll_every_s for follow in self._follows), default=TROUBLE_PAUSE_S)

    def _expiry_s(self, lease: Lease | None) -> float:
        """Return when to read again, because a live lease expires; infinity for a free lease: the polls are enough."""
        if lease is None or not lease.is_live:
            return float("inf")
        return self._clock.now_s() + lease.remaining_s + EXPIRY_SLACK_S

    def _hint(self, what: str, name: str) -> None:
        if what == UNKNOWN:
            self._hurry()
            return
        if what == ASKED:
            self._on_asked(name)
        for follow in [f for f in self._follows if f.name == name]:
            if follow.wants_changes:
                self._hurry()
            elif what != ASKED:
                follow.hear(News.CHANGED if what == ACQUIRED else News.FREED, None)
