"""A primary that waits for its standby, and a database there in which commits wait for nobody by themselves."""

from collections.abc import Iterator

import pytest

from tests.servers.pair import Pair, ask, running_pair
from tests.servers.postgres import binaries_of, fresh_database


@pytest.fixture(scope="module")
def shared_pair() -> Iterator[Pair]:
    with running_pair(binaries_of()) as pair:
        yield pair


@pytest.fixture
def pair(shared_pair: Pair) -> Iterator[Pair]:
    """The primary waits for the standby, but not with what is set to be below."""
    shared_pair.wait_for("*")
    yield shared_pair
    shared_pair.standby.thaw()
    shared_pair.wait_for("")


@pytest.fixture
def url(pair: Pair) -> Iterator[str]:
    """An empty database in which commits wait for nobody by themselves."""
    with fresh_database(pair.primary) as address:
        name = address.rpartition("/")[2]
        ask(address, f"ALTER DATABASE {name} SET synchronous_commit = off")
        yield address
        pair.standby.thaw()  # to drop the database is a commit too
