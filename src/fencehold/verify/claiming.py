"""The part of a contender that claims events: a worker of the public API, and beside it loops on the statements alone.

These loops handle their claims slowly, or keep a claim until another has the event, and complete it only then.
"""

from __future__ import annotations

import asyncio
import random
import secrets
from contextlib import suppress
from typing import Any

from fencehold.model.errors import FenceholdError
from fencehold.ports.backend import Backend, events_of
from fencehold.ports.events import Claim, ClaimAsk, EventRow, Filter
from fencehold.runtime.store import Store
from fencehold.verify.messages import Brief, Orders, Windows, tell, tell_stale
from fencehold.verify.role import Role, found, repeated

PLAIN, HELD = "plain", "held"
MAX_RETRIES = 1000
FAIL_PART = 0.05
CONCURRENCY = 4
CALM_BATCH = 20


class DeliberateError(Exception):
    """Some handlers fail, so that failures are part of the run."""


class Claiming(Role):
    name = "event"

    def __init__(self, brief: Brief, backend: Backend, windows: Windows) -> None:
        super().__init__(brief, windows)
        self._events = events_of(backend, brief.outbox)
        self._is_calm = False

    def listen(self, orders: Orders) -> None:
        super().listen(orders)
        orders.on("calm", self._calm)

    def _calm(self, order: dict[str, Any]) -> None:
        self._is_calm = True

    async def run(self, store: Store) -> None:
        lease_s = self._brief.lease_s
        outbox = store.outbox(
            self._brief.outbox, lease=lease_s, max_retries=MAX_RETRIES, retry_base=0.05, retry_cap=0.5
        )
        worker = outbox.worker(
            {PLAIN: self._handle}, concurrency=CONCURRENCY, worker_id=self._brief.who, poll_every=lease_s / 4
        )
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(worker.run())
            tasks.create_task(repeated(self._claim_and_keep, self._pause_s))
            tasks.create_task(repeated(self._claim_and_finish, self._pause_s))

    async def close(self) -> None:
        with suppress(FenceholdError):
            await self._events.close()

    async def _handle(self, event: Claim) -> None:
        tell("handled", event=event.tracking_id)
        if random.random() < FAIL_PART:
            raise DeliberateError("one in so many")

    # --- by the statements alone

    def _pause_s(self) -> float:
        return self._brief.lease_s * random.uniform(0.02, 0.1)

    async def _claimed(self, limit: int, lease_s: float) -> list[Claim]:
        token = f"{self._brief.who}/late-{secrets.token_hex(6)}"
        ask = ClaimAsk(limit, token, lease_s, event_types=(HELD,))
        return (await self._events.port.turn([], ask, self._brief.lease_s)).claims

    async def _claim_and_finish(self) -> None:
        """Handle claims slowly, so that an earlier claimant can come back meanwhile; at the end of the run at once."""
        claims = await self._claimed(CALM_BATCH if self._is_calm else 1, self._brief.lease_s)
        if claims and not self._is_calm:
            await asyncio.sleep(0.6 * self._brief.lease_s)
        for claim in claims:
            tell("handled", event=claim.tracking_id)
        await self._events.port.turn([claim.key for claim in claims], None, self._brief.lease_s)

    async def _claim_and_keep(self) -> None:
        if self._is_calm:
            return
        for claim in await self._claimed(1, self._brief.lease_s / 2):
            async with self.window("claimed", event=claim.tracking_id):
                await self._complete_late(claim)

    async def _complete_late(self, claim: Claim) -> None:
        """Wait until another has the event, and only then complete it."""
        lease_s = self._brief.lease_s
        row = await found(lambda: self._successor(claim), 3 * lease_s, lease_s / 40)
        if row is None:
            return
        seen = f"{row.lock_token} held it ({row.status.value})"
        done = (await self._events.port.turn([claim.key], None, self._brief.lease_s)).completed
        tell_stale("COMPLETE", f"event {claim.tracking_id}", claim.token, seen, bool(done))

    async def _successor(self, claim: Claim) -> EventRow | None:
        rows = await self._events.admin.find(Filter(tracking_ids=(claim.tracking_id,)), 1, self._brief.lease_s)
        return rows[0] if rows and rows[0].lock_token not in (None, claim.token) else None
