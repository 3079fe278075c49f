"""`url`: an empty database, once on PostgreSQL, once on SQLite, and once on SQL Server where one is given.

`opened`: a store on it, and what it tells.
"""

import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import pytest

import fencehold
from tests.outbox.conftest import database, file_url, schema_url, url  # noqa: F401 - the same databases
from tests.outbox.scene import Heard

KIND = "negotiation"
OpenedItems = Callable[..., AbstractAsyncContextManager[tuple[fencehold.Items, Heard]]]


@pytest.fixture
def memory() -> str:
    return f"memory://{uuid.uuid4().hex}"


@pytest.fixture
def opened() -> OpenedItems:
    """`async with opened(url, lease="1s") as (items, heard):` an open store with its tables made."""

    @asynccontextmanager
    async def open_at(url: str, **settings: Any) -> AsyncIterator[tuple[fencehold.Items, Heard]]:  # noqa: F811
        heard = Heard()
        async with fencehold.connect(url, facts=heard) as store:
            items = store.items(KIND, **settings)
            await store.init()
            yield items, heard

    return open_at
