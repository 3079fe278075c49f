"""What all tests of the service share."""

from pathlib import Path

import pytest

#: A server that only speaks T-SQL may take seconds to read the first statements of each of its sessions.
SQL_SERVER_LIMIT_S = 400
HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        is_sqlserver = "[sqlserver" in item.nodeid or "sqlserver" in item.path.name
        if is_sqlserver and item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.limit(SQL_SERVER_LIMIT_S))
