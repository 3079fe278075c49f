"""The server context in a Node process, and a container of the driver's shape in front of it.

Everything from the port down to the driver's own calls is the library's; below that, the uploaded procedures run
unmodified on documents in memory.
"""

import asyncio
import json
import subprocess
import threading
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from azure.cosmos.exceptions import CosmosHttpResponseError

from tests.servers.programs import require

SCRIPT = Path(__file__).resolve().parent / "bridge.mjs"
CHARGED = {"x-ms-request-charge": "1.0"}

Document = dict[str, Any]


class Bridge:
    """One process for any number of spaces, each a container of its own; asked from any thread."""

    def __init__(self) -> None:
        pipe = subprocess.PIPE
        self._process = subprocess.Popen([str(require("node")), str(SCRIPT)], stdin=pipe, stdout=pipe, text=True)
        self._lock = threading.Lock()

    def ask(self, space: str, verb: str, **request: Any) -> Any:
        """The answer; a fault is raised as the driver raises it."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with self._lock:
            self._process.stdin.write(json.dumps({"space": space, "verb": verb, **request}) + "\n")
            self._process.stdin.flush()
            answer = json.loads(self._process.stdout.readline())
        if fault := answer.get("fault"):
            raise CosmosHttpResponseError(fault["status"], fault["message"], sub_status=fault["sub_status"])
        return answer["answer"]

    def close(self) -> None:
        self._process.communicate(timeout=10)


class Scripts:
    def __init__(self, container: "Container") -> None:
        self._container = container

    async def create_stored_procedure(self, body: Document, *, response_hook: Any) -> Document:
        made: Document = await self._container.ask(
            "create_procedure", response_hook, name=body["id"], body=body["body"]
        )
        return made

    async def execute_stored_procedure(
        self, sproc: str, *, partition_key: str, parameters: Sequence[Any], raw_response_hook: Any
    ) -> Any:
        told = {"partition": partition_key, "name": sproc, "parameters": list(parameters)}
        answer = await self._container.ask("execute", None, **told)
        raw_response_hook(SimpleNamespace(http_response=SimpleNamespace(status_code=200, headers=CHARGED)))
        return answer


class Container:
    """What the library calls of `azure.cosmos.aio.ContainerProxy`, with the same arguments and faults."""

    def __init__(self, bridge: Bridge, space: str) -> None:
        self._bridge = bridge
        self._space = space
        self.scripts = Scripts(self)
        self.executed: list[str] = []

    async def ask(self, verb: str, hook: Any, **request: Any) -> Any:
        await asyncio.sleep(0)  # others may come in between two requests
        self.executed.append(verb)
        answer = self._bridge.ask(self._space, verb, **request)
        if hook is not None:
            hook(CHARGED, answer)
        return answer

    async def read(self) -> Document:
        return {"id": self._space}

    async def read_item(self, item: str, *, partition_key: str, response_hook: Any) -> Document:
        found: Document = await self.ask("read", response_hook, partition=partition_key, id=item)
        return found

    async def create_item(self, body: Document, *, response_hook: Any) -> Document:
        made: Document = await self.ask("create", response_hook, partition=body["pk"], document=body)
        return made

    async def upsert_item(self, body: Document, *, response_hook: Any) -> Document:
        made: Document = await self.ask("upsert", response_hook, partition=body["pk"], document=body)
        return made

    async def replace_item(
        self, item: str, body: Document, *, etag: str, match_condition: Any, response_hook: Any
    ) -> Document:
        assert item == body["id"]
        kept: Document = await self.ask("replace", response_hook, partition=body["pk"], document=body, etag=etag)
        return kept

    async def patch_item(
        self, item: str, *, partition_key: str, patch_operations: Sequence[Mapping[str, Any]], etag: str,
        match_condition: Any, response_hook: Any,
    ) -> Document:  # fmt: skip
        told = {"partition": partition_key, "id": item, "operations": list(patch_operations), "etag": etag}
        kept: Document = await self.ask("patch", response_hook, **told)
        return kept

    async def delete_item(
        self, item: str, *, partition_key: str, etag: str, match_condition: Any, response_hook: Any
    ) -> None:
        await self.ask("delete", response_hook, partition=partition_key, id=item, etag=etag)

    def query_items(
        self, query: str, *, parameters: Sequence[Mapping[str, Any]], partition_key: str, max_item_count: int,
        response_hook: Any,
    ) -> "Pages":  # fmt: skip
        told = {"partition": partition_key, "query": query, "parameters": list(parameters)}
        return Pages(self, told, max_item_count, response_hook)


class Pages:
    """All that a query finds, in pages."""

    def __init__(self, container: Container, told: Document, count: int, hook: Any) -> None:
        self._container, self._told, self._count, self._hook = container, told, count, hook

    async def by_page(self) -> AsyncIterator[AsyncIterator[Document]]:
        found = await self._container.ask("query", self._hook, **self._told)
        for start in range(0, len(found), max(1, self._count)):
            yield one_by_one(found[start : start + self._count])


async def one_by_one(documents: Sequence[Document]) -> AsyncIterator[Document]:
    for document in documents:
        yield document
