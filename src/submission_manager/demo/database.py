"""Creates the service's tables, with the audit's triggers, in an unused database."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import quote

from fencehold.connect import backend_for, scheme
from fencehold.model.errors import ConfigurationError
from submission_manager.stores.audit import Audit
from submission_manager.stores.opening import LEASE_TABLE, open_store

INIT_LIMIT_S = 60.0


async def prepare(url: str) -> Audit:
    """Create the tables and install the audit. Call it before the first instance starts, to log the first grant too."""
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


@asynccontextmanager
async def a_place(given: str | None, folder: Path) -> AsyncIterator[str]:
    """Yield a URL for one run: a file in `folder`, or a new schema in the given database, dropped afterwards."""
    if given is None:
        yield f"sqlite:///{folder / 'demo.db'}"
        return
    if scheme(given) != "postgresql":
        raise ConfigurationError(
            "The demo's own SQLite file needs no URL; for another database give a postgresql:// URL.", code="bad_url"
        )
    backend_for(given, LEASE_TABLE)  # raises for a bad URL, without showing its password
    name = f"submission_manager_demo_{secrets.token_hex(4)}"
    owner = Audit("postgresql://" + given.partition("://")[2])
    await asyncio.to_thread(owner.make_schema, name)
    try:
        mark = "&" if "?" in given else "?"
        yield f"{given}{mark}options={quote(f'-csearch_path={name}')}"
    finally:
        # An interrupt must wait here: nothing may be left behind.
        await asyncio.shield(asyncio.to_thread(owner.drop_schema, name))
        owner.close()
