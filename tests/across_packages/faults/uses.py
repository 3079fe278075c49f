"""One piece of real work of each capability, so that one fault can be tried on all of them in the same words."""

from __future__ import annotations

import secrets
from contextlib import AsyncExitStack

import fencehold
from tests.fencehold.runtime.outbox.scene import eventually

LEASE_S = 2.0
HELD_S = 6.0
CAPABILITIES = ("leader", "fence", "outbox", "items")
TABLE = "CREATE TABLE IF NOT EXISTS fault_writes (epoch bigint, value text)"


class Use:
    """`work()` is done whole or raises; `recovers()` waits until it can be done again."""

    def __init__(self, store: fencehold.Store, capability: str, lease_s: float = LEASE_S) -> None:
        self.store, self.capability, self.lease_s = store, capability, lease_s
        self.outbox = store.outbox(lease=lease_s)
        self.items = store.items("document", lease=lease_s)
        self.worked = 0
        self._leader: fencehold.Leader | None = None
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Use:
        await self.prepare()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._stack.aclose()

    async def prepare(self) -> None:
        await self.store.init()
        if self.capability == "fence":
            self._leader = await self._stack.enter_async_context(self.store.leader("faults", lease=HELD_S))
            await self._fenced(TABLE)

    async def work(self) -> None:
        await {"leader": self._lead, "fence": self._write, "outbox": self._handle, "items": self._save}[
            self.capability
        ]()
        self.worked += 1

    async def recovers(self) -> None:
        """The same work can be done again, as soon as what an answer left behind that was lost has lapsed."""
        await eventually(self._worked)

    async def _worked(self) -> bool:
        try:
            await self.work()
        except (fencehold.Unavailable, fencehold.Uncertain, fencehold.AlreadyLeased, fencehold.LeaseLost, Busy):
            return False
        return True

    async def _lead(self) -> None:
        before = await self.store.leases.read("faults")
        lease = await self.store.leases.acquire("faults", lease=self.lease_s)
        if lease is None:
            raise Busy
        assert lease.epoch > (before.epoch if before else 0)
        assert await self.store.leases.renew(lease, self.lease_s) is not None
        assert await self.store.leases.release(lease) is not None

    async def _write(self) -> None:
        await self._fenced(f"INSERT INTO fault_writes VALUES (1, '{padding()}')")

    async def _fenced(self, statement: str) -> None:
        """In the term that is held all the time: so it is the write itself that meets the fault."""
        assert self._leader is not None
        if not await self._leader.wait_for_leadership(3 * LEASE_S) or (term := self._leader.term) is None:
            raise Busy
        async with term.transaction() as tx:
            await tx.execute(statement)

    async def _handle(self) -> None:
        tracking_id = await self.outbox.add("faulty", {"n": self.worked, "padding": padding()})
        claims = await self.outbox.claim(100, "worker")
        if tracking_id not in {claim.tracking_id for claim in claims}:
            raise Busy
        assert len(await self.outbox.complete(claims)) == len(claims)

    async def _save(self) -> None:
        await self.items.put(f"n-{self.worked}", state="A", document=1)
        item = await self.items.acquire(f"n-{self.worked}")
        await item.save(state="B", document={"n": self.worked, "padding": padding()})
        await self.items.break_lease(f"n-{self.worked}")
        found = await self.items.get(f"n-{self.worked}")
        assert found is not None
        assert (found.state, found.document["n"]) == ("B", self.worked)


async def works_on(use: Use) -> None:
    """What was in the file before may leave room for a few more rows."""
    for _ in range(100):
        await use.work()


def padding() -> str:
    """So long, and so hard to compress, that a few rows fill a page."""
    return secrets.token_hex(1000)


class Busy(Exception):
    """Somebody has what we want: perhaps we ourselves, by a request whose answer was lost."""
