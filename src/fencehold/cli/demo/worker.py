"""One worker process of `fencehold demo`: leads when elected, writes through the fence, and reports what happens.

It writes lines of JSON to stdout, each with the time by the clock that all processes of the machine share; it reads
orders from stdin. It dies with the process that started it, even while it is frozen.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from typing import Any

import fencehold
from fencehold.cli.run import guardian
from fencehold.ports.time_limit import TimeLimit
from fencehold.runtime.election.term import Term
from fencehold.verify.messages import tell, tell_trust

LEASE = "demo"
LATE = "late write"
WRITE = "INSERT INTO demo_log (holder_id, epoch, note) VALUES (?, ?, ?)"
LATE_WRITE = "INSERT INTO demo_log (holder_id, epoch, note) SELECT :holder_id, :epoch, :note WHERE "

IN_THE_ROW = "SELECT holder_id, lease_epoch FROM fencehold_leases WHERE lease_name = ?"

OPEN_WINDOW = "open window"
GO_ON = "go on"


class Worker:
    """One worker of the demo: leads when elected, writes through the fence, reports what happens.

    At the grant and at every renewal it reports until when it trusts its lease; in between it only reads its clock.
    """

    def __init__(self, name: str, write_every_s: float) -> None:
        self._name = name
        self._write_every_s = write_every_s
        self._leader: fencehold.Leader | None = None
        self._connection: Any = None
        self._orders: asyncio.Queue[str] = asyncio.Queue()

    async def run(self, url: str, lease_s: float) -> None:
        asyncio.get_running_loop().add_reader(0, self._hear)
        async with fencehold.connect(url, facts=self) as store:
            self._leader = store.leader(LEASE, lease=lease_s, acquire_every=lease_s / 5, holder_id=self._name)
            async with self._leader as leader:
                async for term in leader.terms():
                    async with term:
                        tell_trust(term)
                        row = await store.leases.read(LEASE)
                        if row is not None and row.epoch == term.epoch:
                            tell("granted", name=LEASE, epoch=term.epoch, store_s=row.acquired_at.timestamp())
                        await self._lead(term)

    def fact(self, event: str, **fields: Any) -> None:
        """Report a fact of this worker's leader. Called on any thread."""
        match event:
            case "leader_acquired":
                tell("acquired", name=LEASE, epoch=fields["lease_epoch"])
            case "leader_renewed":
                if self._leader is not None and (term := self._leader.term) is not None:
                    tell_trust(term)
            case "leader_lost" | "leader_releasing":
                tell("ended", name=LEASE, epoch=fields["lease_epoch"])

    async def _lead(self, term: Term) -> None:
        number = 0
        while True:
            number += 1
            async with term.transaction() as tx:
                await tx.execute(WRITE, (self._name, term.epoch, f"write {number}"))
                self._connection = tx.connection
            tell("wrote", epoch=term.epoch)
            try:
                async with TimeLimit(self._write_every_s):
                    await self._orders.get()
            except TimeoutError:
                continue
            self._write_late(term)

    def _write_late(self, term: Term) -> None:
        """Check the lease, freeze, then write: the case that goes wrong with a lock without a fence.

        Nothing awaits between these steps, so only the database can stop the write.
        """
        term.check()
        guard = term.guard()
        tell("checked", epoch=term.epoch)
        if not os.read(0, 64):  # frozen here, and thawed after another has taken over
            os._exit(0)
        params = {"holder_id": self._name, "epoch": term.epoch, "note": LATE, **guard.params}
        cursor = self._connection.execute(LATE_WRITE + guard.sql, params)
        if cursor.rowcount:
            tell("late_write", accepted=True, epoch=term.epoch, rows=cursor.rowcount)
            return
        holder, epoch = self._connection.execute(IN_THE_ROW, (LEASE,)).fetchone()
        tell("late_write", accepted=False, epoch=term.epoch, rows=0, holder_in_row=holder, epoch_in_row=epoch)
        guard.check(cursor)  # raises LeaseLost

    def _hear(self) -> None:
        data = os.read(0, 64)
        if not data:
            os._exit(0)  # the process that gives the orders is gone
        self._orders.put_nowait(data.decode())


def main(url: str, name: str, lease_s: float) -> None:
    for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(signum, signal.SIG_DFL)
    guardian.die_with_parent()
    asyncio.run(Worker(name, write_every_s=lease_s / 8).run(url, lease_s))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], float(sys.argv[3]))
