"""Backends on the stand-in for Cosmos DB that are closed with the test."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from fencehold.backends.cosmos.address import parse
from fencehold.backends.cosmos.backend import CosmosBackend
from fencehold.backends.cosmos.server_clock import ServerClock
from fencehold.ports.facts import FactSink

LIMIT_S = 10.0


@pytest.fixture
def opened(cosmos_url: str) -> Callable[..., object]:
    """`async with opened() as backend:` a client of the same database, its container made."""

    @asynccontextmanager
    async def make(
        clock: ServerClock | None = None, url: str = cosmos_url, init: bool = True, facts: FactSink | None = None
    ) -> AsyncIterator[CosmosBackend]:
        backend = CosmosBackend(parse(url), "fencehold_leases", clock, facts)
        try:
            await backend.open(LIMIT_S)
            if init:
                await backend.schema.init(LIMIT_S)
            yield backend
        finally:
            await backend.close()

    return make
