"""Creates the service's tables, with the audit's triggers, in an unused database."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import fencehold
from fencehold.service import scheme
from submission_manager.demo.audit import Audit
from submission_manager.stores.opening import LEASE_TABLE, open_store


async def prepare(url: str) -> Audit:
    """Create the tables and install the audit. Call it before the first instance starts, to log the first grant too."""
    async with fencehold.connect(url, table=LEASE_TABLE, facts=fencehold.FanOut()) as leases:
        await leases.init()
    store = open_store(url)
    try:
        await store.init()
    finally:
        await store.close()
    audit = Audit(url)
    await audit.install()
    return audit


@asynccontextmanager
async def a_place(given: str | None, folder: Path) -> AsyncIterator[str]:
    """Yield a URL for one run: a file in `folder`, or a new schema in the given database, dropped afterwards."""
    if given is None:
        yield f"sqlite:///{folder / 'demo.db'}"
        return
    if scheme(given) != "postgresql":
        raise fencehold.ConfigurationError(
            "The demo's own SQLite file needs no URL; for another database give a postgresql:// URL.", code="bad_url"
        )
    fencehold.connect(given)  # raises for a bad URL, without showing its password
    from submission_manager.stores.own_schema import own_schema

    async with own_schema(given) as url:
        yield url
