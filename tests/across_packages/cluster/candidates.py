"""Leaders that write through the fence all the time, what each of them saw, and what the surviving branch holds.

Two names, each with two candidates: those of `hosts` know all nodes, those of `proxy` the address of HAProxy. Beside
them a plain client writes without any lease: what it waits, the database itself was away.
"""

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import psycopg

import fencehold
from fencehold.testing.history import Believed, Event, Granted, Refused, Wrote, boottime_s, check
from tests.across_packages.cluster.losing import rows
from tests.servers.cluster import Cluster

HOSTS, PROXY, PLAIN = "hosts", "proxy", "plain"
LEASE = "5s"
WRITE_EVERY_S, LOOK_EVERY_S = 0.05, 0.02
WRITE_LIMIT_S = 4.0  # of the plain client
LIMIT_S = 90.0
TABLE = """
CREATE TABLE ledger (
    place bigserial PRIMARY KEY, name text NOT NULL, holder text NOT NULL, epoch bigint NOT NULL, value text NOT NULL)
"""
WRITE = "INSERT INTO ledger (name, holder, epoch, value) VALUES (%s, %s, %s, %s)"
LEDGER = "SELECT place, name, holder, epoch, value FROM ledger ORDER BY place"


@dataclass
class Stage:
    """One event loop's candidates, their history, and when each write was acknowledged."""

    cluster: Cluster
    database: str
    history: list[Event] = field(default_factory=list)
    acknowledged: dict[str, dict[str, float]] = field(default_factory=dict)  # name -> value -> when

    def saw(self, name: str, value: str) -> None:
        self.acknowledged.setdefault(name, {})[value] = boottime_s()

    async def until_written(self, *names: str, on: str | None = None) -> None:
        """Every one of these names is written anew, on this node alone (or wherever clients go)."""
        url = on or self.cluster.url(self.database)
        seen = await latest(url, 0)
        since = max(seen.values(), default=0)
        await until(lambda: written_since(url, since, names), f"{names} are not all written again")

    def gap_s(self, name: str, since_s: float) -> float:
        """The longest time after `since_s` in which nothing of this name was acknowledged."""
        times = sorted(when for when in self.acknowledged[name].values())
        return max((after - before for before, after in itertools.pairwise(times) if after > since_s), default=0.0)

    def judged(self, *, beliefs: bool = True) -> list[str]:
        """What the referee objects to: the history with all that the surviving branch holds as written."""
        kept = [one for one in self.history if beliefs or not isinstance(one, Believed)]
        found = rows(self.cluster.url(self.database), LEDGER)
        wrote = [Wrote(name, holder, epoch, place) for place, name, holder, epoch, _ in found if name != PLAIN]
        return [str(violation) for violation in check([*kept, *wrote])]

    def lost(self) -> set[str]:
        """Writes that were acknowledged and are not there."""
        kept = {value for *_, value in rows(self.cluster.url(self.database), LEDGER)}
        return {value for written in self.acknowledged.values() for value in written} - kept


class Candidate:
    """It tries to lead for as long as it runs, and writes whenever it does."""

    def __init__(self, stage: Stage, url: str, name: str, holder: str) -> None:
        self._stage, self._url, self._name, self._holder = stage, url, name, holder
        self._numbers = itertools.count(1)

    async def run(self) -> None:
        async with fencehold.connect(self._url) as store:
            leader = store.leader(self._name, lease=LEASE, holder_id=self._holder, acquire_every="500ms")
            async with leader:
                async for term in leader.terms():
                    await self._lead(term)

    async def _lead(self, term: fencehold.Term) -> None:
        seen = [boottime_s()]
        self._stage.history.append(Granted(term.name, term.holder_id, term.epoch, seen[0]))
        belief = asyncio.create_task(self._believe(term, seen))
        try:
            async with term:
                while term.is_valid:
                    await self._write(term)
                    await asyncio.sleep(WRITE_EVERY_S)
        finally:
            belief.cancel()
            self._stage.history.append(Believed(term.name, term.holder_id, term.epoch, seen[0], seen[-1]))

    async def _believe(self, term: fencehold.Term, seen: list[float]) -> None:
        """When the term was valid in its own eyes."""
        while term.is_valid:
            seen[1:] = [boottime_s()]
            await asyncio.sleep(LOOK_EVERY_S)

    async def _write(self, term: fencehold.Term) -> None:
        value = f"{self._holder}-{next(self._numbers)}"
        try:
            async with term.transaction() as tx:
                await tx.execute(WRITE, [term.name, term.holder_id, term.epoch, value])
        except fencehold.LeaseLost as error:
            self._stage.history.append(Refused(term.name, term.holder_id, term.epoch, boottime_s(), str(error)))
        except (fencehold.FenceholdError, psycopg.Error):
            pass  # no answer, or none yet: not acknowledged
        else:
            self._stage.saw(term.name, value)


async def write_plainly(stage: Stage, url: str) -> None:
    """A client without a lease, on a new connection for each write."""
    for number in itertools.count(1):
        with suppress(psycopg.Error, TimeoutError):
            async with asyncio.timeout(WRITE_LIMIT_S):
                async with await psycopg.AsyncConnection.connect(url, autocommit=True, connect_timeout=2) as conn:
                    await conn.execute(WRITE, [PLAIN, "", 0, f"plain-{number}"])
                stage.saw(PLAIN, f"plain-{number}")
        await asyncio.sleep(WRITE_EVERY_S)


@asynccontextmanager
async def on_stage(cluster: Cluster, database: str) -> AsyncIterator[Stage]:
    """All candidates run and write; at the end they are stopped, and give back what they hold."""
    stage = Stage(cluster, database)
    urls = {HOSTS: cluster.url(database), PROXY: cluster.proxy_url(database)}
    async with fencehold.connect(urls[HOSTS]) as store:
        await store.init()
    async with await psycopg.AsyncConnection.connect(urls[HOSTS], autocommit=True) as conn:
        await conn.execute(TABLE)
    await asyncio.to_thread(cluster.wait_for_proxy)
    both = [Candidate(stage, url, name, f"{name}-{letter}") for name, url in urls.items() for letter in "AB"]
    tasks = [asyncio.create_task(one.run()) for one in both]
    tasks.append(asyncio.create_task(write_plainly(stage, urls[HOSTS])))
    try:
        await stage.until_written(HOSTS, PROXY, PLAIN)
        yield stage
    finally:
        for task in tasks:
            task.cancel()
        ended = await asyncio.gather(*tasks, return_exceptions=True)
    assert [one for one in ended if not isinstance(one, asyncio.CancelledError)] == [], "a candidate ended by itself"


async def latest(url: str, since: int) -> dict[str, int]:
    """name -> its last place after this one, as the node says; {} while it says nothing."""
    sql = f"SELECT name, max(place) FROM ledger WHERE place > {since} GROUP BY name"
    try:
        return dict(await asyncio.to_thread(rows, url, sql))
    except psycopg.Error:
        return {}


async def written_since(url: str, since: int, names: tuple[str, ...]) -> bool:
    return set(names) <= set(await latest(url, since))


async def until(holds: Callable[[], Any], complaint: str) -> None:
    try:
        async with asyncio.timeout(LIMIT_S):
            while not await holds():  # noqa: ASYNC110 - other processes set no event here
                await asyncio.sleep(LOOK_EVERY_S)
    except TimeoutError:
        raise AssertionError(complaint) from None
