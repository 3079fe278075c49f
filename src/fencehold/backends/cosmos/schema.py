"""The database and the container: created if the key allows it, else described for somebody who may create them."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from azure.cosmos import PartitionKey
from azure.cosmos.exceptions import CosmosHttpResponseError

from fencehold.backends.cosmos import faults
from fencehold.backends.cosmos.wire import Wire
from fencehold.model.errors import ConfigurationError
from fencehold.ports.schema import Waits, unheard
from fencehold.ports.time_limit import TimeLimit

PARTITION_KEY_PATH = "/pk"
# Only paths that queries use: every write pays for each indexed path.
INDEXED = ("/pk/?", "/name/?", "/state/?", "/stateTimestamp/?", "/lease/expiresAt/?")


class CosmosSchema:
    def __init__(self, wire: Wire) -> None:
        self._wire = wire

    async def init(self, limit_s: float, waits: Waits = unheard) -> list[str]:
        """Safe to repeat and in parallel: the second of two processes finds that everything exists."""
        return await self._sorted(self._created(), limit_s, is_write=True)

    async def missing(self, limit_s: float) -> list[str]:
        return await self._sorted(self._absent(), limit_s, is_write=False)

    async def fault(self, limit_s: float) -> ConfigurationError | None:
        missing = await self.missing(limit_s)
        return faults.schema_missing(", ".join(missing)) if missing else None

    async def rights_missing(self, limit_s: float) -> list[str]:
        return []  # a key may do all or only read; the server refuses the first write then

    async def _sorted(self, work: Coroutine[Any, Any, list[str]], limit_s: float, *, is_write: bool) -> list[str]:
        try:
            async with TimeLimit(limit_s):
                return await work
        except TimeoutError:
            raise faults.of_timeout(is_write=is_write) from None
        except CosmosHttpResponseError as error:
            raise faults.of_answer(error, is_write=is_write) from None
        except ConfigurationError:
            raise
        except faults.DRIVER_ERRORS as error:
            raise faults.of_transport(error, is_write=is_write) from None

    async def _absent(self) -> list[str]:
        try:
            await self._check_container()
        except CosmosHttpResponseError as error:
            if error.status_code != faults.NOT_FOUND:
                raise
            return [f"container {self._wire.address.container}"]
        return []

    async def _created(self) -> list[str]:
        client, address = await self._wire.client(), self._wire.address
        steps: list[str] = []
        try:
            await self._check_container()
            return steps
        except CosmosHttpResponseError as error:
            if error.status_code != faults.NOT_FOUND:
                raise
        if address.credential:
            raise faults.only_by_hand(
                f"There is no container {address.container!r} in the database {address.database!r}"
            )
        if await self._made(client.create_database(address.database)):
            steps.append(f"database {address.database}")
        database = client.get_database_client(address.database)
        made = await self._made(
            database.create_container(
                address.container, PartitionKey(path=PARTITION_KEY_PATH), indexing_policy=indexing_policy()
            )
        )
        if made:
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
        """Raises ConfigurationError (container_exists) for another partition key: the container is then not ours."""
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
