"""`capability` is in turn leases, fenced writes, outbox and items; `used(url)` is a store on which to work with it.

`disk` can be filled; `clock` is the wall clock of one process, `faked_server` a PostgreSQL with a clock of its own.
"""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest

import fencehold
from tests.across_packages.faults.faked_clock import FakedClock, FakedServer
from tests.across_packages.faults.uses import CAPABILITIES, Use
from tests.conftest import not_run
from tests.fencehold.backends.sqlite.test_disk import disk  # noqa: F401 - the same disk
from tests.servers.postgres import binaries_of
from tests.servers.programs import Missing

Used = Callable[[str], AbstractAsyncContextManager[Use]]


@pytest.fixture(params=CAPABILITIES)
def capability(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def used(capability: str) -> Used:
    @asynccontextmanager
    async def on(url: str) -> AsyncIterator[Use]:
        async with fencehold.connect(url) as store, Use(store, capability) as use:
            await use.work()
            yield use

    return on


@pytest.fixture
def clock(tmp_path: Path, request: pytest.FixtureRequest) -> FakedClock:
    return faked(tmp_path, request)


@pytest.fixture
def faked_server(request: pytest.FixtureRequest) -> Iterator[FakedServer]:
    binaries = binaries_of()
    server = FakedServer(binaries.folder, binaries.major, binaries.libraries)
    try:
        server.clock = faked(server.folder, request)
        server.start()
        yield server
    finally:
        server.close()


def faked(folder: Path, request: pytest.FixtureRequest) -> FakedClock:
    try:
        return FakedClock(folder)
    except Missing as missing:
        not_run(request.config, missing)
