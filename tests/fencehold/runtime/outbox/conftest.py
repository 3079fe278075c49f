"""`opened`: an open store with an outbox, and what it tells. The databases are those of tests/fencehold/conftest.py."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import pytest

import fencehold
from tests.fencehold.runtime.outbox.scene import Heard

Opened = Callable[..., AbstractAsyncContextManager[tuple[fencehold.Outbox, Heard]]]


@pytest.fixture
def opened() -> Opened:
    """`async with opened(url, lease="1s") as (outbox, heard):` an open store with its tables made."""

    @asynccontextmanager
    async def open_at(url: str, **settings: Any) -> AsyncIterator[tuple[fencehold.Outbox, Heard]]:
        heard = Heard()
        async with fencehold.connect(url, facts=heard) as store:
            outbox = store.outbox(**settings)
            await store.init()
            yield outbox, heard

    return open_at
