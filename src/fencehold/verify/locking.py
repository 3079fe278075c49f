"""The part of a contender that holds the advisory lock, with a fencing epoch beside it. PostgreSQL only."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from typing import Any

from fencehold.model.election.leases import TermKey
from fencehold.testing.history import boottime_s
from fencehold.verify.messages import Brief, tell
from fencehold.verify.plan import LOCK
from fencehold.verify.writer import Writer

LOOK_EVERY_S = 0.02
INTERVALS_PER_TRUST = 5  # a rule of pgleaderlock: so many health intervals without a probe end the session


class Locking:
    def __init__(self, brief: Brief, writer: Writer) -> None:
        from pgleaderlock import LeaderLock

        assert brief.lock_name is not None, "asked for"
        self._brief, self._writer = brief, writer
        self._lock = LeaderLock.for_name(
            brief.url, brief.lock_name, health_interval_s=brief.lease_s / INTERVALS_PER_TRUST,
            fencing_name=LOCK, fencing_table=brief.lease_table,
        )  # fmt: skip
        self._lock.on_error(self._failed)

    async def _failed(self, error: Exception) -> None:
        tell("lock_error", error=f"{type(error).__name__}: {error}")

    async def run(self) -> None:
        await self._lock.start()
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._look())
                tasks.create_task(self._write())
        finally:
            with suppress(Exception):
                await self._lock.shutdown(2.0)

    async def _look(self) -> None:
        """Report when `is_leader` was first and last seen true; a freeze can only shorten that time."""
        was_leader, seen_s = False, 0.0
        while True:
            at_s = boottime_s()
            is_leader = self._lock.is_leader
            if is_leader != was_leader:
                tell("lock_held" if is_leader else "lock_left", since_s=at_s, seen_s=seen_s)
            if is_leader and int(at_s * 5) != int(seen_s * 5):
                tell("lock_seen", seen_s=at_s)
            was_leader, seen_s = is_leader, at_s if is_leader else seen_s
            await asyncio.sleep(LOOK_EVERY_S)

    async def _write(self) -> None:
        hand_over_s = 0.0
        while True:
            await asyncio.sleep(self._brief.write_every_s * 2)
            term: Any = self._lock.term
            if term is None or not term.is_valid:
                hand_over_s = boottime_s() + random.uniform(0.5, 2.0) * self._brief.lease_s
                continue
            await self._writer.write_in(term.transaction, TermKey(LOCK, self._brief.who, term.epoch, 0.0))
            if boottime_s() >= hand_over_s:
                with suppress(Exception):
                    await self._lock.step_down(self._brief.lease_s)
