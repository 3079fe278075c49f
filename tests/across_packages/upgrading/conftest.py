"""`old_url`: a database with the tables of the first version, once on PostgreSQL and once on SQLite."""

import pytest

from tests.across_packages.upgrading import old_tables


@pytest.fixture(params=["postgres", "sqlite"])
def empty_url(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue(f"{request.param}_url"))


@pytest.fixture
def old_url(empty_url: str) -> str:
    old_tables.make(empty_url)
    return empty_url
