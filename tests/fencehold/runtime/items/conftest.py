"""`opened`: an open store with items, and what it tells; `memory`: the URL of a store in memory.

The databases are those of tests/fencehold/conftest.py.
"""

import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import pytest

import fencehold
from tests.fencehold.runtime.outbox.scene import Heard

KIND = "negotiation"
OpenedItems = Callable[..., AbstractAsyncContextManager[tuple[fencehold.Items, Heard]]]


@pytest.fixture
def memory() -> str:
    return f"memory://{uuid.uuid4().hex}"


@pytest.fixture
def opened() -> OpenedItems:
    """`async with opened(url, lease="1s") as (items, heard):` an open store with its tables made."""

    @asynccontextmanager
    async def open_at(url: str, **settings: Any) -> AsyncIterator[tuple[fencehold.Items, Heard]]:
        heard = Heard()
        async with fencehold.connect(url, facts=heard) as store:
            items = store.items(KIND, **settings)
            await store.init()
            yield items, heard

    return open_at
