"""Where grants were made, as a test would have it: one server has one timeline, so what rows say of it is forged."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import psycopg

import fencehold
from fencehold.model.election.places import Place

HERE = (
    "SELECT ('x' || left(pg_walfile_name(pg_current_wal_insert_lsn()), 8))::bit(32)::bigint, system_identifier"
    " FROM pg_control_system()"
)
OF_ROW = "SELECT lease_epoch, grant_timeline, grant_system FROM fencehold_leases WHERE lease_name = %s"
FORGED = "UPDATE fencehold_leases SET grant_timeline = %s, grant_system = %s, expires_at = %s"
LAPSED, LIVE = "2026-01-01", "2099-01-01"
TRIGGER = """
DROP TRIGGER fencehold_leases_epoch_lifted ON fencehold_leases;
CREATE TRIGGER fencehold_leases_epoch_lifted BEFORE INSERT OR UPDATE OF lease_epoch ON fencehold_leases
   FOR EACH ROW EXECUTE FUNCTION fencehold_leases_lift('{timeline}', '{system}')
"""


def run(url: str, statement: str, *params: object) -> list[tuple[object, ...]]:
    with psycopg.connect(url, autocommit=True) as pg:
        cursor = pg.execute(statement.encode(), params or None)
        return cursor.fetchall() if cursor.description else []


@dataclass
class Scene:
    url: str
    store: fencehold.Store
    here: Place

    def all_places(self) -> list[Place]:
        """Unknown, here, before and after it, near and far, in the same system's data, another's, and nobody knows."""
        assert self.here.timeline is not None
        timelines = (None, self.here.timeline - 1, self.here.timeline, self.here.timeline + 1, 2**32 - 1, -6)
        return [Place(timeline, system) for timeline in timelines for system in (None, self.here.system, 4711)]

    def forge(self, last: Place, expires_at: str = LAPSED) -> None:
        """As if every lease had been granted there."""
        run(self.url, FORGED, last.timeline, last.system, expires_at)

    def forge_origin(self, origin: Place) -> None:
        """As if `init` had run there."""
        found = {"timeline": origin.timeline, "system": origin.system}
        run(self.url, TRIGGER.format(**{key: "" if part is None else part for key, part in found.items()}))

    async def acquire(self, name: str) -> int:
        lease = await self.store.leases.acquire(name, "ada", lease=30)
        assert lease is not None
        return lease.epoch

    def row(self, name: str) -> tuple[int, Place]:
        [(epoch, timeline, system)] = run(self.url, OF_ROW, name)
        return epoch, Place(timeline, system)  # type: ignore[arg-type, return-value]


@asynccontextmanager
async def scene_at(url: str) -> AsyncIterator[Scene]:
    async with fencehold.connect(url) as store:
        await store.init()
        [(timeline, system)] = run(url, HERE)
        yield Scene(url, store, Place(timeline, system))  # type: ignore[arg-type]
