"""A leader or a worker as a real process, of whichever version of fencehold its PYTHONPATH leads to.

    python tests/across_packages/upgrading/resident.py leader|worker URL NAME

It tells what happens as JSON lines and obeys its standard input (`stop`, `add TYPE`, `acquire NAME`). It ends with that
input, or after two minutes, whatever happens.
"""

import asyncio
import contextlib
import json
import os
import sqlite3
import sys
import threading
from typing import Any

import psycopg

import fencehold

LIFE_S = 120.0
LEASE_S = 6.0
COUNT = "UPDATE tally SET n = n + 1"


def tell(event: str, **fields: Any) -> None:
    sys.stdout.write(json.dumps({"event": event, **fields}) + "\n")
    sys.stdout.flush()


def connected(url: str) -> Any:
    return (
        sqlite3.connect(url.removeprefix("sqlite:///"), timeout=5)
        if url.startswith("sqlite:")
        else psycopg.connect(url)
    )


class Resident:
    def __init__(self, url: str, name: str) -> None:
        self.url, self.name = url, name
        self.commands: asyncio.Queue[list[str]] = asyncio.Queue()
        self.stopping = asyncio.Event()

    def read(self, loop: asyncio.AbstractEventLoop) -> None:
        for line in sys.stdin:
            loop.call_soon_threadsafe(self.commands.put_nowait, line.split())
        os._exit(3)  # whoever started this is gone

    async def run(self, role: str) -> None:
        tell("started", source=fencehold.__file__)
        threading.Thread(target=self.read, args=(asyncio.get_running_loop(),), daemon=True).start()
        async with asyncio.timeout(LIFE_S), fencehold.connect(self.url) as store:
            outbox = store.outbox()
            obeying = asyncio.create_task(self.obey(store, outbox))
            await (self.lead(store) if role == "leader" else self.work(outbox))
            obeying.cancel()
        tell("stopped")

    async def obey(self, store: fencehold.Store, outbox: fencehold.Outbox) -> None:
        while True:
            match await self.commands.get():
                case ["stop"]:
                    self.stopping.set()
                case ["add", event_type]:
                    with contextlib.closing(connected(self.url)) as tx:
                        tracking_id = await outbox.add(event_type, {}, tx=tx)
                        tx.commit()
                    tell("added", tracking_id=tracking_id)
                case ["acquire", name]:
                    lease = await store.leases.acquire(name, self.name, lease=600)
                    tell("acquired", name=name, epoch=lease and lease.epoch)

    async def lead(self, store: fencehold.Store) -> None:
        async with store.leader("job", lease=LEASE_S, holder_id=self.name) as leader:
            leading = asyncio.create_task(self.terms(leader))
            await self.stopping.wait()
            await leader.shutdown()
            await leading

    async def terms(self, leader: fencehold.Leader) -> None:
        async for term in leader.terms():
            tell("leading", epoch=term.epoch)
            async with term:
                while True:
                    await self.write(term)
                    tell("wrote", epoch=term.epoch)
                    await asyncio.sleep(0.1)
            tell("over", epoch=term.epoch, because=term.ended_because)

    async def write(self, term: fencehold.Term) -> None:
        """Through each of the three fences."""
        async with term.transaction() as tx:
            await tx.execute(COUNT)
        with contextlib.closing(connected(self.url)) as connection:
            await term.fence(connection)
            connection.execute(COUNT)
            connection.commit()
            guard = term.guard()
            guard.check(connection.execute(f"{COUNT} WHERE {guard.sql}", dict(guard.params)))
            connection.commit()

    async def work(self, outbox: fencehold.Outbox) -> None:
        async def handle(event: Any) -> None:
            tell("handled", tracking_id=event.tracking_id, event_type=event.event_type)

        worker = outbox.worker({self.name: handle, "any": handle}, worker_id=self.name, poll_every=0.2)
        running = asyncio.create_task(worker.run())
        tell("working")
        waits = [asyncio.create_task(self.stopping.wait()), running]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        worker.stop()
        await running


if __name__ == "__main__":
    asyncio.run(Resident(*sys.argv[2:4]).run(sys.argv[1]))
