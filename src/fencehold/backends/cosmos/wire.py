"""Sends requests to one container, each within its verb's limit.

Turns their errors into ours, reports what they cost, and notes the server's time (`_ts`) of their answers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from typing import Any, TypeVar

from azure.core import MatchConditions
from azure.core.credentials_async import AsyncTokenCredential
from azure.core.pipeline.transport import AioHttpTransport
from azure.cosmos.aio import ContainerProxy, CosmosClient
from azure.cosmos.exceptions import CosmosHttpResponseError

from fencehold.backends.cosmos import faults
from fencehold.backends.cosmos.address import Address
from fencehold.backends.cosmos.credentials import token_credential
from fencehold.backends.cosmos.server_clock import ServerClock, Window
from fencehold.model.errors import ConfigurationError
from fencehold.ports.fact_table import StoreFacts
from fencehold.ports.facts import FactSink
from fencehold.ports.time_limit import fixed

Document = dict[str, Any]
T = TypeVar("T")
Hook = Callable[..., None]
Ask = Callable[[ContainerProxy, Hook], Awaitable[T]]

CLOCK_ID = "~clock"  # no encoded name looks like this
CHARGE_HEADER = "x-ms-request-charge"
PAUSE_S_MIN = 0.005
AT_ONCE_MAX = 32  # more would only wait for a connection, and the clock's window grows with every wait


class Wire:
    """One client of the driver, opened by the first request; for one event loop."""

    def __init__(self, address: Address, clock: ServerClock | None = None, facts: FactSink | None = None) -> None:
        self.address = address
        self.clock = clock or ServerClock()
        self.facts = facts
        self._client: CosmosClient | None = None
        self._token: AsyncTokenCredential | None = None  # ours to close: the client does not
        self._container: ContainerProxy | None = None
        self._opening = asyncio.Lock()
        self.slots = asyncio.Semaphore(AT_ONCE_MAX)

    async def client(self) -> CosmosClient:
        """Return the driver's client, and open it first if needed. The caller limits the time.

        That a client is open does not mean that the server has accepted the login.
        """
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
        """Return the container.

        It was read once, so a later 404 means that a document is missing, not the container.
        """
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
    """The requests of one verb: they share its time limit, and their costs are reported under its name.

    A request returns None (or False) if the server refuses it. Without an answer it raises: Unavailable for a read,
    which changes nothing, and for a write that certainly did not arrive; Uncertain for any other write.
    """

    def __init__(self, wire: Wire, verb: str, limit_s: float) -> None:
        self.verb = verb
        self._wire = wire
        self.left_s = fixed(limit_s)

    async def now(self, partition: str) -> Window:
        """Return the window: the earliest and the latest time that the server's clock may show for this partition.

        If the last reading is too old, it first writes a document that serves only to read the clock. Raises
        Unavailable (timeout) if that gave no reading.
        """
        if (window := self._wire.clock.window(partition)) is None:
            # It changes nobody's data: without an answer nothing is uncertain.
            document = {"id": CLOCK_ID, "pk": partition}
            await self._send(lambda c, hook: c.upsert_item(document, response_hook=hook), partition, is_write=False)
            window = self._wire.clock.window(partition)
        if window is None:
            raise faults.of_timeout(is_write=False)
        return window

    async def read(self, partition: str, document_id: str) -> Document | None:
        return await self._send(lambda c, hook: c.read_item(document_id, partition_key=partition, response_hook=hook))

    async def write(self, partition: str, document: Document, before: Document | None) -> Document | None:
        """Create the document, or replace `before`, and return what is stored. `before`: the document as it was read.

        None: nothing was written, because another client has created, changed or deleted the document.
        """

        def ask(container: ContainerProxy, hook: Hook) -> Awaitable[Document]:
            if before is None:
                return container.create_item(document, response_hook=hook)
            return container.replace_item(
                document["id"], document, etag=before["_etag"], match_condition=MatchConditions.IfNotModified,
                response_hook=hook,
            )  # fmt: skip

        return await self._send(ask, written_in=partition)

    async def patch(
        self, partition: str, document_id: str, operations: Sequence[Mapping[str, Any]], etag: str
    ) -> Document | None:
        """Apply the operations to the document of this etag, which sends less than the whole document.

        Return what is stored. None: nothing was written, because another client has changed or deleted the document.
        """
        return await self._send(
            lambda c, hook: c.patch_item(
                document_id, partition_key=partition, patch_operations=[dict(one) for one in operations], etag=etag,
                match_condition=MatchConditions.IfNotModified, response_hook=hook,
            ),
            written_in=partition,
        )  # fmt: skip

    async def query(self, partition: str, text: str, parameters: Mapping[str, Any], limit: int) -> list[Document]:
        """Return up to `limit` documents of one logical partition. The query's text calls the partition @partition."""
        given = [{"name": f"@{name}", "value": value} for name, value in parameters.items()]
        given.append({"name": "@partition", "value": partition})

        async def ask(container: ContainerProxy, hook: Hook) -> list[Document]:
            found: list[Document] = []
            pages = container.query_items(
                text, parameters=given, partition_key=partition, max_item_count=min(limit, 1000), response_hook=hook
            ).by_page()
            async for page in pages:
                found += [dict(one) async for one in page]
                if len(found) >= limit:
                    break
            return found[:limit]

        found = await self._send(ask)
        if found is None:
            raise faults.schema_missing("the container is gone")
        return found

    async def execute_procedure(self, partition: str, name: str, parameters: Sequence[Any]) -> Any:
        """Run the stored procedure and return what it set as the body of its answer. None: there is no such procedure.

        An exception in the procedure undoes all that the procedure did.
        """

        async def ask(container: ContainerProxy, hook: Hook) -> Any:
            # The driver ignores `response_hook` here. It calls `raw_response_hook`, for refusals too.
            told: dict[str, Any] = {"parameters": list(parameters), "raw_response_hook": of_success(hook)}
            try:
                return await container.scripts.execute_stored_procedure(name, partition_key=partition, **told)
            except CosmosHttpResponseError as error:
                raise faults.of_script(error) from None

        return await self._send(ask, written_in=partition)

    async def create_procedure(self, name: str, body: str) -> bool:
        """Create the stored procedure and return True; False if there is a procedure of this name already."""
        made = await self._send(
            lambda c, hook: c.scripts.create_stored_procedure({"id": name, "body": body}, response_hook=hook),
            written_in="",
        )
        return made is not None

    async def _send(self, ask: Ask[T], written_in: str | None = None, is_write: bool | None = None) -> T | None:
        """Send the request and return its answer, or None if the server refuses it.

        `written_in`: the partition it writes in. It is repeated only after an answer that says that nothing was
        executed.
        """
        is_write = written_in is not None if is_write is None else is_write
        async with self._within(is_write=False):
            container = await self._wire.container()
        while True:
            answer = await self._sent_once(container, ask, written_in, is_write)
            if not isinstance(answer, CosmosHttpResponseError):
                return answer
            await self._pause(answer)

    async def _sent_once(
        self, container: ContainerProxy, ask: Ask[T], written_in: str | None, is_write: bool
    ) -> T | CosmosHttpResponseError | None:
        """Send the request once and return its answer, or None if the server refuses it.

        Returns the error itself if nothing was executed and the request is worth repeating; raises any other error.
        """
        async with self._within(is_write=False):
            await self._wire.slots.acquire()
        try:
            if self.left_s() <= 0:
                raise faults.of_timeout(is_write=False)
            sent_s = self._wire.clock.now_s()
            async with self._within(is_write):
                try:
                    answer = await ask(container, self._charge)
                except CosmosHttpResponseError as error:
                    self._charge(error.headers)
                    if faults.is_refusal(error):
                        return None
                    if faults.is_passing(error):
                        return error
                    raise
        finally:
            self._wire.slots.release()
        if written_in and isinstance(answer, dict) and "_ts" in answer:
            self._wire.clock.note(written_in, answer["_ts"], sent_s)
        return answer

    def _within(self, is_write: bool) -> AbstractAsyncContextManager[None]:
        return faults.within(self.left_s(), is_write)

    async def _pause(self, error: CosmosHttpResponseError) -> None:
        wait_s = max(PAUSE_S_MIN, faults.retry_after_s(error))
        if wait_s >= self.left_s():
            raise faults.of_answer(error, is_write=False)
        await asyncio.sleep(wait_s)

    def _charge(self, headers: Mapping[str, str] | None = None, *_: Any) -> None:
        if self._wire.facts is not None:
            StoreFacts(self._wire.facts).request_charged(verb=self.verb, request_units=units_of(headers))


async def closed(*parts: CosmosClient | AsyncTokenCredential | None) -> None:
    for part in parts:
        if part is not None:
            with suppress(Exception):
                await part.close()


async def refuse_many_writers(client: CosmosClient) -> None:
    """Raise ConfigurationError (many_write_regions) if the account has several write regions.

    In such an account two takeovers can both succeed, and one of them is undone later, so it cannot keep a lease.
    """
    account = await client.client_connection.GetDatabaseAccount()
    if len(account.WritableLocations) > 1:
        raise ConfigurationError(
            "This Cosmos DB account has several write regions, where a write by etag excludes nobody.",
            hint="Turn off multi-region writes, or keep leases in an account with one write region.",
            code="many_write_regions",
        )


def of_success(hook: Hook) -> Callable[[Any], None]:
    def heard(answer: Any) -> None:
        if answer.http_response.status_code < faults.SCRIPT_FAILED:
            hook(answer.http_response.headers)

    return heard


def units_of(headers: Mapping[str, str] | None) -> float:
    try:
        return float((headers or {}).get(CHARGE_HEADER, 0.0))
    except ValueError:
        return 0.0
