"""The database and the container on Cosmos DB: created if the login may do that.

If it may not, the commands for somebody who may create them are given.
"""

from __future__ import annotations

from typing import Any

from azure.cosmos import PartitionKey
from azure.cosmos.exceptions import CosmosHttpResponseError

from fencehold.backends.cosmos import faults
from fencehold.backends.cosmos.wire import Wire
from fencehold.model.errors import ConfigurationError
from fencehold.ports.schema import Waits, unheard

PARTITION_KEY_PATH = "/pk"
# Only paths that queries use: every write pays for each indexed path.
INDEXED = ("/pk/?", "/name/?", "/state/?", "/stateTimestamp/?", "/lease/expiresAt/?")


class CosmosSchema:
    def __init__(self, wire: Wire) -> None:
        self._wire = wire

    async def init(self, limit_s: float, waits: Waits = unheard) -> list[str]:
        """Create the database and the container and return the steps just applied. Safe to repeat and in parallel.

        If two processes do it at once, the second one finds that everything exists.
        """
        async with faults.within(limit_s, is_write=True):
            return [] if await self._is_there() else await self._created()

    async def missing(self, limit_s: float) -> list[str]:
        async with faults.within(limit_s, is_write=False):
            return [] if await self._is_there() else [f"container {self._wire.address.container}"]

    async def fault(self, limit_s: float) -> ConfigurationError | None:
        missing = await self.missing(limit_s)
        return faults.schema_missing(", ".join(missing)) if missing else None

    async def rights_missing(self, limit_s: float) -> list[str]:
        return []  # a key may do all or only read; the server refuses the first write then

    async def _is_there(self) -> bool:
        try:
            await self._check_container()
        except CosmosHttpResponseError as error:
            if error.status_code != faults.NOT_FOUND:
                raise
            return False
        return True

    async def _created(self) -> list[str]:
        client, address = await self._wire.client(), self._wire.address
        if address.credential:
            raise faults.only_by_hand(
                f"There is no container {address.container!r} in the database {address.database!r}"
            )
        steps: list[str] = []
        if await self._made(client.create_database(address.database)):
            steps.append(f"database {address.database}")
        database = client.get_database_client(address.database)
        key, policy = PartitionKey(path=PARTITION_KEY_PATH), indexing_policy()
        if await self._made(database.create_container(address.container, key, indexing_policy=policy)):
            steps.append(f"container {address.container}")
        else:
            await self._check_container()
        return steps

    @staticmethod
    async def _made(create: object) -> bool:
        try:
            await create  # type: ignore[misc]
        except CosmosHttpResponseError as error:
            if error.status_code != faults.CONFLICT:
                raise
            return False
        return True

    async def _check_container(self) -> None:
        """Raise ConfigurationError (container_exists) if the container has another partition key, so is not ours."""
        address = self._wire.address
        database = (await self._wire.client()).get_database_client(address.database)
        found = await database.get_container_client(address.container).read()
        if found["partitionKey"]["paths"] != [PARTITION_KEY_PATH]:
            raise ConfigurationError(
                f"The container {address.container!r} is partitioned by {found['partitionKey']['paths']}, not by "
                f"{PARTITION_KEY_PATH}; nothing was changed.",
                hint="Name another container in the URL: ?container=fencehold_leases.",
                code="container_exists",
            )

    def script(self) -> str:
        address = self._wire.address
        return (
            "# Cosmos DB has no SQL for this; with the Azure command line, given $ACCOUNT and $GROUP:\n"
            "az cosmosdb sql database create --account-name $ACCOUNT --resource-group $GROUP \\\n"
            f"    --name {address.database}\n"
            "az cosmosdb sql container create --account-name $ACCOUNT --resource-group $GROUP \\\n"
            f"    --database-name {address.database} --name {address.container} \\\n"
            f"    --partition-key-path {PARTITION_KEY_PATH}\n"
            "# Leave time to live off: a lease that is deleted would start again at epoch 1.\n"
            f"# Worth having: an indexing policy of these paths alone: {', '.join(INDEXED)}\n"
        )


def indexing_policy() -> dict[str, Any]:
    return {
        "indexingMode": "consistent",
        "automatic": True,
        "includedPaths": [{"path": path} for path in INDEXED],
        "excludedPaths": [{"path": "/*"}],
    }
