"""Recovers events whose lease has lapsed: they become PENDING again, or dead letters when no tries are left.

One reaper per outbox is active: the one that holds a leader's lease. The other reapers wait, and one of them takes over
when the active one ends.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from typing import Any

from fencehold.model.errors import ConfigurationError, FenceholdError
from fencehold.model.outbox.rules import Status
from fencehold.model.outbox.settings import OutboxSettings
from fencehold.ports.events import EventPort, Events, Recovered
from fencehold.ports.fact_table import OutboxFacts
from fencehold.runtime.core.clock import first_done
from fencehold.runtime.core.keeper_thread import post_to
from fencehold.runtime.core.repeated_failures import Outage
from fencehold.runtime.election.leader import Leader
from fencehold.runtime.outbox.context import OutboxAccess

REAP_MAX = 1000
LEASE_S_MAX = 30.0
STALE_FACTS_MAX = 1000
AGAIN_S = 2.0  # after a run that failed
LOST_EVERY = 3  # reaper intervals without a run, beyond a lease, before its absence is an error


class Reaper:
    """Recovers lapsed events as long as `run` runs. An error of the store is logged, and the reaper goes on."""

    def __init__(self, outbox: OutboxAccess, reaper_id: str) -> None:
        self.outbox, self._access, self._reaper_id = outbox.name, outbox, reaper_id
        self._clock, self._facts = outbox.clock, outbox.facts
        self._wants_stats = outbox.facts.wants_latencies
        self._stop = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._leader: Leader | None = None
        self._events: Events | None = None
        self._outage = Outage(outbox.facts, outbox.clock)
        self._failure: FenceholdError | None = None  # of the last request
        self._has_looked = False  # counts were reported, and are still shown

    async def begin(self) -> None:
        """Start to seek the lease that makes this reaper the active one.

        During an outage, tries go on in the background. Raises ConfigurationError when waiting cannot help, such as for
        a missing right on the lease table.
        """
        self._loop = asyncio.get_running_loop()
        # Its lease ends no later than those of the events it would recover.
        leader = self._access.reaper_candidate(self._reaper_id, min(LEASE_S_MAX, self._access.settings.lease_s))
        await leader.start()
        self._leader, self._failure = leader, None

    async def run(self) -> None:
        """Work until `stop()` is called: while this process leads, recover lapsed events every `reap_every`.

        Raises ConfigurationError when waiting cannot help, as `begin` does.
        """
        if self._leader is None:
            await self.begin()
        self._events = events = self._access.make_events()
        try:
            while not self._stop.is_set():
                await self._watch(events)
        finally:
            self._events = None
            self._unsee()
            if self._leader is not None:
                await self._leader.shutdown()
            await events.close()

    async def _watch(self, events: Events) -> None:
        """Do one round of the loop: wait until this reaper is the active one, then recover lapsed events.

        A ConfigurationError at this point is logged, and the round is tried again later.
        """
        try:
            if self._leader is None:
                await self.begin()
            elif await self._leads(self._leader):
                await self._reap(events)
                every_s = self._access.settings.reap_every_s
                await self._clock.wait(self._stop, min(every_s, AGAIN_S) if self._failure else every_s)
        except ConfigurationError as error:
            self._leader = None
            self._log_failed(error)
            await self._clock.wait(self._stop, self._access.settings.reap_every_s)

    async def _leads(self, leader: Leader) -> bool:
        """Wait until this reaper is the active one. Returns True then, False if it is stopped before that."""
        if not leader.is_leader:
            self._failure = None
            self._unsee()
        leading, _ = await first_done(leader.wait_for_leadership(), self._stop.wait())
        if leading.done():
            leading.result()
        return leader.is_leader and not self._stop.is_set()

    async def probe(self) -> None:
        """Ask the store for what every run needs, on this reaper's connection. Raises the error that it finds.

        Call it on the event loop of `run`. Also raises the error of the last run, because this request only reads and a
        run must write.
        """
        await self._access.probe(self._events, self._stop.is_set(), self._failure)

    def stop(self) -> None:
        if self._loop is None:
            self._stop.set()
        else:
            post_to(self._loop, self._stop.set)

    async def _reap(self, events: Events) -> None:
        """Recover lapsed events, then report the counts of the table, even if the recovery failed."""
        failures = [await self._tried(self._run_once(events)), await self._tried(self._look(events))]
        failure = failures[0] or failures[1]
        if failure is not None:
            self._log_failed(failure)
        else:
            self._failure = None
            self._outage.answered()

    async def _run_once(self, events: Events) -> None:
        await self._access.make_tables()
        await reap_all(events.port, self._access, self._access.settings.call_limit_s)

    async def _tried(self, work: Coroutine[Any, Any, object]) -> FenceholdError | None:
        try:
            await work
        except FenceholdError as error:
            return error
        return None

    def _log_failed(self, error: FenceholdError) -> None:
        self._failure = error
        self._facts.reaper_failed(sql_error=str(error))
        self._outage.failed(error)

    async def _look(self, events: Events) -> None:
        """Report the counts of the outbox's table as a fact.

        If the store does not answer, report that the counts are unknown: old counts would look new.
        """
        if not self._wants_stats:
            return
        try:
            stats = await events.admin.stats(self._access.settings.call_limit_s, whole=False)
        except FenceholdError:
            self._unsee()
            raise
        self._has_looked = True
        self._facts.outbox_stats(
            pending=stats.pending, processing=stats.processing, failed=stats.failed, dead_letter=stats.dead_letter,
            oldest_pending_age_s=stats.oldest_pending_age_s, looked_at=time.time(),
        )  # fmt: skip

    def _unsee(self) -> None:
        if self._has_looked:
            self._has_looked = False
            self._facts.outbox_unseen()


async def reap_all(port: EventPort, outbox: OutboxAccess, limit_s: float) -> list[Recovered]:
    """Recover every event whose lease has lapsed, in batches, each within the limit; return what became of each.

    Logs the run and each event.
    """
    began_s, found = outbox.clock.now_s(), list[Recovered]()
    while len(batch := await port.reap(REAP_MAX, limit_s)) == REAP_MAX:
        found += batch
    found += batch
    _log_reaped(outbox.facts, found, outbox.clock.now_s() - began_s)
    return found


def _log_reaped(facts: OutboxFacts, found: list[Recovered], took_s: float) -> None:
    dead = sum(1 for recovered in found if recovered.status is Status.DEAD_LETTER)
    stale_s = [round(recovered.stale_s, 3) for recovered in found[:STALE_FACTS_MAX]]
    facts.reaper_run(recovered=len(found) - dead, dead=dead, stale_s=stale_s, took_s=round(took_s, 4))
    for recovered in found:
        facts.event_recovered(
            id=recovered.id, tracking_id=recovered.tracking_id, event_type=recovered.event_type,
            status=str(recovered.status), retry_count=recovered.retry_count, stale_s=round(recovered.stale_s, 3),
            lock_token=recovered.token,
        )  # fmt: skip


def is_missing(ran_s_ago: float | None, settings: OutboxSettings) -> bool:
    """Return whether no reaper seems to run, if the last run was this many seconds ago. None means: never."""
    return ran_s_ago is None or ran_s_ago > settings.lease_s + LOST_EVERY * settings.reap_every_s
