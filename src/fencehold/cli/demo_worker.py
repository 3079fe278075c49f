"""One contender of `fencehold demo`: leads when elected, writes through the fence, and tells what it sees.

Lines of JSON on stdout, each with the moment on the clock all processes share; orders come on stdin. It dies with the
process that started it, also while it is frozen.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from typing import Any

import fencehold
from fencehold.cli import guardian
from fencehold.model.errors import FenceholdError, LeaseLost
from fencehold.runtime.term import Term

LEASE = "demo"
# In a file of its own because of the fence's condition, which the second one takes from term.guard().
WRITE = "INSERT INTO demo_log (holder_id, epoch, note) VALUES (?, ?, ?)"
GUARDED_WRITE = "INSERT INTO demo_log (holder_id, epoch, note) SELECT :holder_id, :epoch, :note WHERE "

OPEN_WINDOW = "open window"
STEP_DOWN = "step down"


def tell(event: str, **fields: Any) -> None:
    # One write: it is whole in the pipe, or it is not there, also when the next instant brings kill -9.
    os.write(1, json.dumps({"at_s": guardian.now_s(), "event": event, **fields}).encode() + b"\n")


class Worker:
    """`valid_until_s` is told at the grant and at every renewal: between those, trust is a clock comparison."""

    def __init__(self, name: str, write_every_s: float) -> None:
        self._name = name
        self._write_every_s = write_every_s
        self._term: Term | None = None
        self._orders: asyncio.Queue[str] = asyncio.Queue()

    def fact(self, event: str, **fields: Any) -> None:
        """The leader's own facts; on any thread."""
        term = self._term
        if event == "leader_renewed" and term is not None and term.epoch == fields["lease_epoch"]:
            self._tell_validity(term)
        elif event in ("leader_lost", "leader_released"):
            tell("ended", epoch=fields["lease_epoch"], reason=fields.get("reason"))

    async def run(self, url: str, lease_s: float) -> None:
        asyncio.create_task(asyncio.to_thread(self._hear, asyncio.get_running_loop()))
        async with fencehold.connect(url, facts=self) as store:
            leader = store.leader(LEASE, lease=lease_s, acquire_every=lease_s / 5, holder_id=self._name)
            async with leader:
                tell("ready")
                async for term in leader.terms():
                    self._term = term
                    row = await store.leases.read(LEASE)
                    granted_at = row.acquired_at.timestamp() if row and row.epoch == term.epoch else None
                    self._tell_validity(term, granted_at=granted_at)
                    async with term:
                        await self._lead(leader, term)

    async def _lead(self, leader: fencehold.Leader, term: Term) -> None:
        number = 0
        while True:
            number += 1
            await self._write(term, f"write {number}")
            try:
                order = await asyncio.wait_for(self._orders.get(), self._write_every_s)
            except TimeoutError:
                continue
            if order == OPEN_WINDOW:
                await self._write_late(term)
            elif order == STEP_DOWN:
                asyncio.create_task(leader.step_down())

    async def _write(self, term: Term, note: str) -> None:
        async with term.transaction() as tx:
            await tx.execute(WRITE, (self._name, term.epoch, note))
            self._connection = tx.connection
        tell("wrote", epoch=term.epoch)

    async def _write_late(self, term: Term) -> None:
        """The moment every lock without a fence gets wrong: checked, then frozen, then written."""
        guard = term.guard()
        term.check()
        tell("checked", epoch=term.epoch)
        sys.stdin.readline()  # frozen here, and thawed after another has taken over
        try:
            params = {"holder_id": self._name, "epoch": term.epoch, "note": "late write", **guard.params}
            guard.check(self._connection.execute(GUARDED_WRITE + guard.sql, params))
            tell("late_write_accepted", epoch=term.epoch)
        except LeaseLost as error:
            tell("late_write_rejected", epoch=term.epoch, error=str(error))
        await self._write(term, "later write")

    def _tell_validity(self, term: Term, **fields: Any) -> None:
        asked_s = guardian.now_s()
        left_s = term.remaining_s
        if left_s > 0:
            tell("valid", epoch=term.epoch, start_s=asked_s, valid_until_s=asked_s + left_s, **fields)

    def _hear(self, loop: asyncio.AbstractEventLoop) -> None:
        """Orders, until the one who gives them is gone."""
