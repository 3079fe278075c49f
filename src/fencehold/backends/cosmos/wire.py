"""Requests to one container, each within its verb's limit. Sorts their faults, counts charges, notes their `_ts`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from azure.core import MatchConditions
from azure.core.credentials_async import AsyncTokenCredential
from azure.core.pipeline.transport import AioHttpTransport
from azure.cosmos.aio import ContainerProxy, CosmosClient
from azure.cosmos.exceptions import CosmosHttpResponseError

from fencehold.backends.cosmos import faults
from fencehold.backends.cosmos.address import Address
from fencehold.backends.cosmos.charges import Charges
from fencehold.backends.cosmos.credentials import token_credential
from fencehold.backends.cosmos.server_clock import ServerClock, Window
from fencehold.model.errors import ConfigurationError, FenceholdError
from fencehold.ports.time_limit import TimeLimit

Document = dict[str, Any]
Ask = Callable[[ContainerProxy, Callable[..., None]], Awaitable[Any]]

CLOCK_ID = "~clock"  # no encoded name looks like this
PAUSE_S_MIN = 0.005
AT_ONCE_MAX = 32  # more would only wait for a connection, and the clock's window grows with every wait


class Wire:
    """One client, opened by the first request; for one event loop."""

    def __init__(self, address: Address, clock: ServerClock | None = None, charges: Charges | None = None) -> None:
        self.address = address
        self.clock = clock or ServerClock()
        self.charges = charges or Charges()
        self._client: CosmosClient | None = None
        self._token: AsyncTokenCredential | None = None  # ours to close: the client does not
        self._container: ContainerProxy | None = None
        self._opening = asyncio.Lock()
        self.slots = asyncio.Semaphore(AT_ONCE_MAX)

    def call(self, verb: str, limit_s: float) -> Call:
        """Return a Call for all requests of one verb: they share its limit, and are counted under its name."""
        return Call(self, verb, limit_s)

    async def client(self) -> CosmosClient:
        """Return the connected client, whose login may not have been tried yet. The caller limits the time."""
        async with self._opening:
            if self._client is None:
                self._client = await self._connected()
            return self._client

    async def _connected(self) -> CosmosClient:
        token = token_credential() if self.address.credential else None
        client = CosmosClient(
            self.address.endpoint, token or self.address.key,
            connection_verify=self.address.verify, enable_endpoint_discovery=not self.address.is_emulator,
            # Retries are decided here, within the limit, which the driver's own retries do not know. A count of 0
            # means to the driver that none is given.
            retry_total=0, retry_connect=0, retry_read=0, retry_status=0, retry_throttle_total=-1,
            retry_write=0,
            # The environment's proxies lead out of the local network, which an emulator is in.
            transport=AioHttpTransport(use_env_settings=not self.address.is_emulator),
        )  # fmt: skip
        try:
            await client.__aenter__()
            if not self.address.is_emulator:
                await refuse_many_writers(client)
        except BaseException:
            await closed(client, token)
            raise
        self._token = token
        return client

    async def container(self) -> ContainerProxy:
        """Return the container. It is read once, so a later 404 means that a document is absent, not the container."""
        client = await self.client()
        if self._container is None:
            found = client.get_database_client(self.address.database).get_container_client(self.address.container)
            await found.read()
            self._container = found
        return self._container

    async def close(self) -> None:
        client, token = self._client, self._token
        self._client = self._token = self._container = None
        await closed(client, token)


class Call:
    """The requests of one verb. They return None (or False) if the server refuses, and raise Unavailable or Uncertain.

    A read without an answer is Unavailable, because it changes nothing; a write only if it certainly did not arrive.
    """

    def __init__(self, wire: Wire, verb: str, limit_s: float) -> None:
        self.verb = verb
        self._wire = wire
        self._ends_s = asyncio.get_running_loop().time() + limit_s

    @property
    def left_s(self) -> float:
        return self._ends_s - asyncio.get_running_loop().time()

    async def now(self, partition: str) -> Window:
        """Return the window that the server's clock lies within. Without a fresh reading, write the clock document
        first.

        Raises Unavailable (timeout) if that gave no reading.
        """
        window = self._wire.clock.window(partition)
        if window is None:
            await self._read_clock(partition)
            window = self._wire.clock.window(partition)
        if window is None:
            raise faults.of_timeout(is_write=False)
        return window

    async def read(self, partition: str, document_id: str) -> Document | None:
        found: Document | None = await self._send(
            lambda c, hook: c.read_item(document_id, partition_key=partition, response_hook=hook)
        )
        return found

    async def create(self, partition: str, document: Document) -> Document | None:
        """Return the created document; None if there is one already."""
        made: Document | None = await self._send(
            lambda c, hook: c.create_item(document, response_hook=hook), written_in=partition
        )
        return made

    async def replace(self, partition: str, document: Document, etag: str) -> Document | None:
        """Return the new document; None if the old one has changed since this etag, or is gone."""
        kept: Document | None = await self._send(
            lambda c, hook: c.replace_item(
                document["id"], bare(document), etag=etag, match_condition=MatchConditions.IfNotModified,
                response_hook=hook,
            ),
            written_in=partition,
        )  # fmt: skip
        return kept

    async def patch(
        self, partition: str, document_id: str, operations: Sequence[Mapping[str, Any]], etag: str
    ) -> Document | None:
        """As `replace`, but only the operations are sent, not the whole document."""
        kept: Document | None = await self._send(
            lambda c, hook: c.patch_item(
                document_id, partition_key=partition, patch_operations=[dict(one) for one in operations], etag=etag,
                match_condition=MatchConditions.IfNotModified, response_hook=hook,
            ),
            written_in=partition,
        )  # fmt: skip
        return kept

    async def _read_clock(self, partition: str) -> None:
        """Write this partition's clock document. It changes nobody's data: without an answer nothing is uncertain."""
        document = {"id": CLOCK_ID, "pk": partition}
        await self._send(lambda c, hook: c.upsert_item(document, response_hook=hook), partition, is_write=False)

    async def query(self, partition: str, text: str, parameters: Mapping[str, Any], limit: int) -> list[Document]:
        """Up to `limit` documents of one logical partition, which the text names as @partition."""
        given = [{"name": f"@{name}", "value": value} for name, value in parameters.items()]
        given.append({"name": "@partition", "value": partition})

        async def ask(container: ContainerProxy, hook: Callable[..., None]) -> list[Document]:
            found: list[Document] = []
            pages = container.query_items(
                text, parameters=given, partition_key=partition, max_item_count=min(limit, 1000), response_hook=hook
            ).by_page()
            async for page in pages:
                found += [dict(one) async for one in page]
                if len(found) >= limit:
                    break
            return found[:limit]

        found: list[Document] | None = await self._send(ask)
        if found is None:
            raise faults.schema_missing("the container is gone")
        return found

    async def execute_procedure(self, partition: str, name: str, parameters: Sequence[Any]) -> Any:
        """Return what the procedure set as its body. Raises LookupError if there is no such procedure.

        An exception in the procedure undoes all that it did.
        """

        async def ask(container: ContainerProxy, hook: Callable[..., None]) -> Any:
            # The driver ignores `response_hook` here. It calls `raw_response_hook`, for refusals too.
            told: dict[str, Any] = {"parameters": list(parameters), "raw_response_hook": of_success(hook)}
            try:
                return await container.scripts.execute_stored_procedure(name, partition_key=partition, **told)
            except CosmosHttpResponseError as error:
                raise faults.of_script(error) from None

        answer = await self._send(ask, written_in=partition)
        if answer is None:
            raise LookupError(name)
        return answer

    async def create_procedure(self, name: str, body: str) -> bool:
        """Return whether the procedure was created; False if there is one of this name already."""
        made = await self._send(
            lambda c, hook: c.scripts.create_stored_procedure({"id": name, "body": body}, response_hook=hook),
            written_in="",
        )
        return made is not None

    async def _send(self, ask: Ask, written_in: str | None = None, is_write: bool | None = None) -> Any:
        """Return the answer, or None if the server refuses. Repeats only after an answer that nothing was executed."""
        is_write = written_in is not None if is_write is None else is_write
        container = await self._opened()
        while True:
            try:
                return await self._sent_once(container, ask, written_in, is_write)
            except CosmosHttpResponseError as passing:
                await self._pause(passing)

    async def _sent_once(self, container: ContainerProxy, ask: Ask, written_in: str | None, is_write: bool) -> Any:
        await self._within(self._wire.slots.acquire(), is_write=False)
        try:
            if self.left_s <= 0:
                raise faults.of_timeout(is_write=False)
            sent_s = self._wire.clock.now_s()
            answer = await self._within(ask(container, self._charge), is_write)
        except CosmosHttpResponseError as error:
            self._charge(error.headers)
            if faults.is_refusal(error):
                return None
            if faults.is_passing(error):
                raise
            raise faults.of_answer(error, is_write) from None
        finally:
            self._wire.slots.release()
        if written_in and isinstance(answer, dict) and "_ts" in answer:
            self._wire.clock.note(written_in, answer["_ts"], sent_s)
        return answer

    async def _opened(self) -> ContainerProxy:
        try:
            container: ContainerProxy = await self._within(self._wire.container(), is_write=False)
        except CosmosHttpResponseError as error:
            raise faults.of_connect(error) from None
        return container

    async def _within(self, ask: Awaitable[Any], is_write: bool) -> Any:
        try:
            async with TimeLimit(max(0.0, self.left_s)):
                return await ask
        except TimeoutError:
            raise faults.of_timeout(is_write) from None
        except (CosmosHttpResponseError, FenceholdError):
            raise
        except faults.DRIVER_ERRORS as error:
            raise faults.of_transport(error, is_write) from None

    async def _pause(self, error: CosmosHttpResponseError) -> None:
        wait_s = max(PAUSE_S_MIN, faults.retry_after_s(error))
        if wait_s >= self.left_s:
            raise faults.of_answer(error, is_write=False) from None
        await asyncio.sleep(wait_s)

    def _charge(self, headers: Mapping[str, str] | None = None, *_: Any) -> None:
        self._wire.charges.add(self.verb, headers)


async def closed(*parts: CosmosClient | AsyncTokenCredential | None) -> None:
    for part in parts:
        if part is not None:
            with suppress(Exception):
                await part.close()


async def refuse_many_writers(client: CosmosClient) -> None:
    """Raises ConfigurationError (many_write_regions) if the account has several write regions.

    There, two takeovers can both succeed, and one is undone later: such an account cannot keep a lease.
    """
    account = await client.client_connection.GetDatabaseAccount()
    if len(account.WritableLocations) > 1:
        raise ConfigurationError(
            "This Cosmos DB account has several write regions, where a write by etag excludes nobody.",
            hint="Turn off multi-region writes, or keep leases in an account with one write region.",
            code="many_write_regions",
        )


def of_success(hook: Callable[..., None]) -> Callable[[Any], None]:
    def heard(answer: Any) -> None:
        if answer.http_response.status_code < faults.SCRIPT_FAILED:
            hook(answer.http_response.headers)

    return heard


def bare(document: Document) -> Document:
    """Return the document without the fields that the server adds."""
    return {name: value for name, value in document.items() if not name.startswith("_")}
