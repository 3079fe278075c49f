"""Each test of the stores runs on both databases, unless it is about one of them."""

import pytest


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest) -> str:
    """The address of an empty database."""
    address: str = request.getfixturevalue(f"{request.param}_url")
    return address
