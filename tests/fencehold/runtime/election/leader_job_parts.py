"""What tests of `store.run_as_leader` share: facts to wait for, a lease that is lost or held."""

import asyncio
from collections import defaultdict
from typing import Any

import fencehold
from fencehold import FixedInterval, Term

SOON = FixedInterval(0.01)


class Told:
    """Facts, for tests that wait for one."""

    def __init__(self) -> None:
        self.all: list[tuple[str, dict[str, Any]]] = []
        self._loop = asyncio.get_running_loop()
        self._events: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)

    def fact(self, event: str, **fields: Any) -> None:
        self.all.append((event, fields))
        self._loop.call_soon_threadsafe(self._events[event].set)

    def of(self, event: str) -> list[dict[str, Any]]:
        return [fields for told, fields in self.all if told == event]

    async def once(self, event: str) -> None:
        await self._events[event].wait()


async def free(store: fencehold.Store, term: Term) -> None:
    """The term is lost, and its lease free."""
    term.lost("for the test")
    row = await store.leases.read(term.name)
    assert row is not None
    await store.leases.release(row)


async def is_held(store: fencehold.Store, name: str = "x") -> bool:
    row = await store.leases.read(name)
    return row is not None and row.is_live


async def for_ever() -> None:
    await asyncio.Event().wait()
