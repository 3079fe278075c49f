"""One database per server for the whole suite; each harness makes a schema of its own in it."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from tests.servers.postgres import AnyPostgres, fresh_database


@pytest.fixture(scope="session")
def database_of() -> Iterator[Callable[[AnyPostgres], str]]:
    made: dict[int, str] = {}
    with ExitStack() as stack:

        def give(server: AnyPostgres) -> str:
            if id(server) not in made:
                made[id(server)] = stack.enter_context(fresh_database(server))
            return made[id(server)]

        yield give
