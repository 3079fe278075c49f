"""`bridge`: the server context of stored procedures, for the entry of Cosmos DB's items by procedure."""

from tests.fencehold.backends.cosmos.items.procedures.conftest import bridge  # noqa: F401 - the same bridge
