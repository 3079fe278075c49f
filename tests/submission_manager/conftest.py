"""What all tests of the service share."""

from pathlib import Path

import pytest

#: A server that only speaks T-SQL may take seconds to read the first statements of each of its sessions.
SQL_SERVER_LIMIT_S = 400
HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        is_ours = item.path.is_relative_to(HERE)
        if is_ours and ("[sqlserver" in item.nodeid or "sqlserver" in item.path.relative_to(HERE).parts):
            item.add_marker(pytest.mark.limit(SQL_SERVER_LIMIT_S))
