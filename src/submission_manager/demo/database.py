"""The service's tables with the witness beside them, in a database that nobody has used for it yet."""

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


@asynccontextmanager
async def a_place(given: str | None, folder: Path) -> AsyncIterator[str]:
    """A URL for one run: a file in `folder`, or a schema of its own in the given database, dropped afterwards."""
    if given is None:
        yield f"sqlite:///{folder / 'demo.db'}"
        return
    if scheme(given) != "postgresql":
        raise ConfigurationError(
            "The demo's own SQLite file needs no URL; for another database give a postgresql:// URL.", code="bad_url"
        )
    backend_for(given, LEASE_TABLE)  # a URL that cannot be used is refused here, without its password
    name = f"submission_manager_demo_{secrets.token_hex(4)}"
    owner = Audit("postgresql://" + given.partition("://")[2])
    await asyncio.to_thread(owner.make_schema, name)
    try:
        mark = "&" if "?" in given else "?"
        yield f"{given}{mark}options={quote(f'-csearch_path={name}')}"
    finally:
        # Whoever is interrupted here has to wait: nothing may be left behind.
        await asyncio.shield(asyncio.to_thread(owner.drop_schema, name))
        owner.close()
