"""An outbox as the commands find it: events in every status, seen and changed from outside."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import fencehold
from fencehold.ports.events import Claim, EventRow, Filter

T = TypeVar("T")


@dataclass(frozen=True)
class Answer:
    """What a command printed, and its exit code."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def error(self) -> Any:
        return json.loads(self.err)["error"]


def with_outbox(url: str, work: Callable[[fencehold.Outbox], Awaitable[T]], **settings: Any) -> T:
    async def run() -> T:
        async with fencehold.connect(url) as store:
            return await work(store.outbox(**settings))

    return asyncio.run(run())


def added(url: str, event_type: str, payload: Any = None, **fields: Any) -> str:
    async def add(outbox: fencehold.Outbox) -> str:
        return await outbox.add(event_type, payload, **fields)

    return with_outbox(url, add)


def rows(url: str, *tracking_ids: str) -> dict[str, EventRow]:
    async def find(outbox: fencehold.Outbox) -> list[EventRow]:
        return await outbox.find(Filter(tracking_ids=tracking_ids), 1000)

    return {row.tracking_id: row for row in with_outbox(url, find)}


def row_of(url: str, tracking_id: str) -> EventRow:
    return rows(url, tracking_id)[tracking_id]


def reaped(url: str) -> int:
    async def reap(outbox: fencehold.Outbox) -> int:
        return len(await outbox.reap())

    return with_outbox(url, reap)


async def claimed(outbox: fencehold.Outbox, event_type: str, worker_id: str, lease_s: float = 60) -> Claim:
    """One event of this type, added and claimed."""
    await outbox.add(event_type, {"of": event_type})
    claims = await outbox.claim(10, worker_id, lease=lease_s)
    return next(claim for claim in claims if claim.event_type == event_type)


def in_every_status(url: str, error: str = "boom") -> dict[str, str]:
    """An event in each status; its tracking id by its type, which says how it came there."""

    async def make(outbox: fencehold.Outbox) -> dict[str, str]:
        done = await claimed(outbox, "done", "w1")
        await outbox.complete(done)
        failed = await claimed(outbox, "failed", "w1")
        await outbox.fail(failed, error)
        rejected = await claimed(outbox, "rejected", "w1")
        await outbox.fail(rejected, error, retry=False)
        held = await claimed(outbox, "held", "w2")
        lapsed = await claimed(outbox, "lapsed", "w3", lease_s=0.001)
        later = await outbox.add("later", 1, not_before=3600)
        due = await outbox.add("due", {"a": 1})
        claims = {claim.event_type: claim.tracking_id for claim in (done, failed, rejected, held, lapsed)}
        return {**claims, "later": later, "due": due}

    return with_outbox(url, make, retry_base=300, retry_cap=300)
