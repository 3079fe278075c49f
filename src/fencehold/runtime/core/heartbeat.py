"""Renews the leases of all events, or of all items, that this process works on, in one statement.

Each turn: wait, end what is over, renew what is due. It runs on the keeper's thread, so a blocked event loop does not
stop it. A lease is lost once and for ever: when the store refuses to renew it, when its deadline passes, or when its
work takes longer than it may.
"""

from __future__ import annotations

import asyncio
import datetime as dt
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Generic, Protocol, TypeVar

from fencehold.model.errors import FenceholdError
from fencehold.model.outbox.settings import HEARTBEAT_PART
from fencehold.ports.clock import Clock

REFUSED, UNPROVEN, TOO_LATE, TOO_LONG = "lease_lost", "heartbeat_failed", "deadline_passed", "max_processing"
TICKS_PER_HEARTBEAT = 2
HEARTBEAT_TRIES = 2


class HeartbeatSettings(Protocol):
    @property
    def lease_s(self) -> float: ...
    @property
    def heartbeat_every_s(self) -> float: ...
    @property
    def margin_s(self) -> float: ...
    @property
    def call_limit_s(self) -> float: ...


class Kept(Protocol):
    """A lease to renew. All times are on this process's clock.

    `renewed_s`: when its grant or last renewal was requested. `deadline_s`: until when this process trusts it.
    """

    lost: str
    started_s: float
    renewed_s: float
    deadline_s: float

    @property
    def key(self) -> Any: ...

    def extend(self, until: dt.datetime, sent_s: float, trusted_s: float) -> bool:
        """Record a renewal by the store. False if the answer came after the deadline: the lease is lost."""
        ...

    def lose(self, reason: str) -> None: ...


K = TypeVar("K", bound=Kept)
Renew = Callable[[Sequence[Any], float, float], Coroutine[Any, Any, Mapping[Any, dt.datetime]]]


class Heartbeat(ABC, Generic[K]):
    """Runs on the keeper's loop. `kept` maps id(lease) to lease; other code changes it, this class only reads it.

    `gives_up`: if the store does not answer, the leases that were due are lost at once, not at their deadlines.
    """

    fact, failed_fact = "heartbeat", "heartbeat_failed"
    gives_up = False

    def __init__(
        self,
        kept: dict[int, K],
        renew: Renew,
        settings: Callable[[], HeartbeatSettings],
        *,
        clock: Clock,
        fact: Callable[..., None],
        on_lost: Callable[[K], None],
    ) -> None:
        self._kept = kept
        self._ask = renew
        self._settings = settings
        self._clock = clock
        self._fact = fact
        self._on_lost = on_lost
        self._wake = asyncio.Event()
        self._closed = False

    async def run(self) -> None:
        while not self._closed:
            await self._clock.wait(self._wake, self._tick_s())
            self._wake.clear()
            self._end_overdue()
            due = self._due()
            if due:
                await self._renew(due)

    def nudge(self) -> None:
        """Wake the loop, because the next tick may now be due sooner."""
        self._wake.set()

    def close(self) -> None:
        self._closed = True
        self._wake.set()

    # --- what differs by kind ---

    @abstractmethod
    def _max_s(self, kept: K) -> float:
        """How many seconds the work on it may take."""

    @abstractmethod
    def _tick_s_max(self) -> float:
        """The longest time, in seconds, between two turns."""

    def _is_attended(self, kept: K) -> bool:
        """False: do not renew it, let it lapse, because whoever works on it seems to be dead."""
        return True

    # --- one turn ---

    def _tick_s(self) -> float:
        soonest_s = min(map(self._beat_s, self._held()), default=self._settings().heartbeat_every_s)
        ticks_s = min(soonest_s, self._settings().heartbeat_every_s) / TICKS_PER_HEARTBEAT
        return min(ticks_s, self._tick_s_max())

    def _beat_s(self, kept: K) -> float:
        """Seconds between renewals of this one, by the lease it was granted: the setting may have changed since."""
        return min(self._settings().heartbeat_every_s, HEARTBEAT_PART * (kept.deadline_s - kept.renewed_s))

    def _held(self) -> list[K]:
        return [kept for kept in list(self._kept.values()) if not kept.lost]

    def _end_overdue(self) -> None:
        now_s = self._clock.now_s()
        for kept in self._held():
            if now_s - kept.started_s >= self._max_s(kept):
                self._lose(kept, TOO_LONG)
            elif now_s >= kept.deadline_s:
                self._lose(kept, TOO_LATE)

    def _due(self) -> list[K]:
        """Those last renewed at least half an interval ago: the next tick would be too late for them."""
        now_s = self._clock.now_s()
        due = [k for k in self._held() if k.renewed_s + self._beat_s(k) / TICKS_PER_HEARTBEAT <= now_s]
        return [kept for kept in due if self._is_attended(kept)]

    async def _renew(self, due: list[K]) -> None:
        settings = self._settings()
        for attempt in range(1, HEARTBEAT_TRIES + 1):
            sent_s = self._clock.now_s()
            try:
                renewed = await self._ask([kept.key for kept in due], settings.lease_s, settings.call_limit_s)
            except FenceholdError as error:
                if attempt == HEARTBEAT_TRIES:
                    self._fact(self.failed_fact, held=len(due), sql_error=str(error))
                    self._lose_all(due if self.gives_up else [], UNPROVEN)
            else:
                self._renewed(due, renewed, sent_s, settings.lease_s - settings.margin_s)
                return

    def _renewed(self, due: list[K], renewed: Mapping[Any, dt.datetime], sent_s: float, trusted_s: float) -> None:
        refused = [kept for kept in due if kept.key not in renewed and self._is_kept(kept)]
        for kept in due:
            until = renewed.get(kept.key)
            if until and not kept.extend(until, sent_s, trusted_s):
                self._lose(kept, TOO_LATE)
        self._fact(self.fact, sent=len(due), refused=len(refused))
        self._lose_all(refused, REFUSED)

    def _is_kept(self, kept: K) -> bool:
        """False if its work ended during the renewal: then a refusal by the store is correct, and no loss."""
        return id(kept) in self._kept

    def _lose_all(self, kept: list[K], reason: str) -> None:
        for one in kept:
            self._lose(one, reason)

    def _lose(self, kept: K, reason: str) -> None:
        kept.lose(reason)
        self._on_lost(kept)
