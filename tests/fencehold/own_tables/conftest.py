"""`url`: an empty database of each kind that has SQL."""

import pytest


@pytest.fixture(params=["sqlite", "postgres", "mssql"])
def url(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue(f"{request.param}_url"))


@pytest.fixture(params=["sqlite", "postgres"])
def transaction_url(request: pytest.FixtureRequest) -> str:
    """Where all steps under a fence are one transaction."""
    return str(request.getfixturevalue(f"{request.param}_url"))
