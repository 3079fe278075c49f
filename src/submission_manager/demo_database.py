"""The service's tables with the witness beside them, in a database that nobody has used for it yet."""

from __future__ import annotations

import asyncio

from fencehold.connect import backend_for
from submission_manager.stores.audit import Audit
from submission_manager.stores.opening import LEASE_TABLE, open_store

INIT_LIMIT_S = 60.0


async def prepare(url: str) -> Audit:
    """Before the first instance starts: the witness must see the first grant too."""
    backend = backend_for(url, LEASE_TABLE)()
    try:
        await backend.schema.init(INIT_LIMIT_S)
    finally:
        await backend.close()
    store = open_store(url)
    try:
        await store.init()
    finally:
        await store.close()
    audit = Audit(url)
    await asyncio.to_thread(audit.install)
    return audit
