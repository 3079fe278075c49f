"""A promotion that loses what its standby had not seen, told as it happened: grants, writes, what each branch holds."""

import asyncio
import itertools
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import psycopg

import fencehold
from fencehold.testing.history import Event, Granted, boottime_s
from tests.servers.cluster import Cluster

OLD_NAME, NEW_NAME = "known", "newborn"
LEDGER = "CREATE TABLE ledger (holder text NOT NULL, epoch bigint NOT NULL, value text NOT NULL)"
WRITE = "INSERT INTO ledger VALUES (%s, %s, %s)"
LEASES = "SELECT lease_name, holder_id, lease_epoch FROM fencehold_leases"
EPOCHS_BEFORE = 3
LONG = "10m"  # nothing lapses by itself while a cluster fails over on a busy machine
TRIES = 20


@dataclass
class Story:
    """What happened around one lost promotion. Of the grants some are known to one branch alone."""

    history: list[Event] = field(default_factory=list)
    stale_write: str = "accepted"
    ledger: list[tuple[Any, ...]] = field(default_factory=list)  # of the branch that survived
    lost_ledger: list[tuple[Any, ...]] = field(default_factory=list)
    lost_leases: dict[str, tuple[str, int]] = field(default_factory=dict)

    def granted(self, lease: fencehold.Lease | None) -> fencehold.Lease:
        assert lease is not None, "somebody else holds it"
        self.history.append(Granted(lease.name, lease.holder_id, lease.epoch, boottime_s()))
        return lease

    def epochs(self, name: str) -> list[int]:
        return [event.epoch for event in self.history if isinstance(event, Granted) and event.name == name]


async def prepare(url: str, names: Iterable[str] = (OLD_NAME,)) -> Story:
    """Tables, and a few terms of each name that every node knows."""
    story = Story()
    async with fencehold.connect(url) as store:
        await store.init()
        for name, _ in itertools.product(names, range(EPOCHS_BEFORE)):
            await store.leases.release(story.granted(await store.leases.acquire(name, "early", LONG)))
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as conn:
        await conn.execute(LEDGER)
    return story


async def a_lost_promotion(cluster: Cluster, database: str) -> Story:
    """A leads and writes where no standby sees it; the primary dies. Then somebody with A's holder id leads anew, and
    A, who believes that it still leads, writes once more."""
    url = cluster.url(database)
    story = await prepare(url)
    await asyncio.to_thread(cluster.wait_until_whole)
    old = await asyncio.to_thread(cluster.primary)
    old.freeze_walsenders()
    async with fencehold.connect(url) as store, store.leader(OLD_NAME, lease=LONG, holder_id="A") as leader:
        assert await leader.wait_for_leadership(30)
        term = leader.term
        assert term is not None
        story.history.append(Granted(term.name, term.holder_id, term.epoch, boottime_s()))
        await written(term, "lost")
        story.granted(await store.leases.acquire(NEW_NAME, "A", LONG))
        with await entered(cluster.losing(old)) as (new, branch):
            async with fencehold.connect(new.url(database)) as heir:
                for name in (OLD_NAME, NEW_NAME):
                    story.granted(await heir.leases.acquire(name, "A", LONG))
            assert term.is_valid, "A must not know yet: the fence alone is to refuse it"
            story.stale_write = await stale_write(term)
            await asyncio.to_thread(branch.start)
            story.lost_leases = {name: (holder, epoch) for name, holder, epoch in rows(branch.dsn(database), LEASES)}
            story.lost_ledger = rows(branch.dsn(database), "SELECT * FROM ledger")
        story.ledger = rows(new.url(database), "SELECT * FROM ledger")
    return story


async def entered(block: Any) -> Any:
    """The block, entered on a thread: it waits for other processes."""
    value = await asyncio.to_thread(block.__enter__)

    class Entered:
        def __enter__(self) -> Any:
            return value

        def __exit__(self, *exc: Any) -> None:
            block.__exit__(*exc)

    return Entered()


async def written(term: fencehold.Term, value: str) -> None:
    async with term.transaction() as tx:
        await tx.execute(WRITE, [term.holder_id, term.epoch, value])


async def stale_write(term: fencehold.Term) -> str:
    """What became of it: `accepted`, or the error. A connection that the failover cut says nothing about the fence."""
    for _ in range(TRIES):
        try:
            await written(term, "stale")
        except (fencehold.Unavailable, fencehold.Uncertain, psycopg.OperationalError):
            continue
        except fencehold.LeaseLost:
            return "LeaseLost"
        return "accepted"
    return "no answer"


def rows(url: str, sql: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(url, autocommit=True, connect_timeout=10) as conn:
        return conn.execute(sql.encode()).fetchall()
