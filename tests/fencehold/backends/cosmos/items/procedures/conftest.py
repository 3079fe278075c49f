"""The bridge, one for the session: a space in it is a container of a test's own."""

from collections.abc import Iterator

import pytest

from tests.fencehold.backends.cosmos.items.procedures.bridge import Bridge


@pytest.fixture(scope="session")
def bridge() -> Iterator[Bridge]:
    started = Bridge()
    yield started
    started.close()
