"""Clients that do not give up: each intent is sent again until it is acknowledged, and never after that.

Uses minimal HTTP/1.1 over persistent connections, because the load must cost less than the service under test.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from typing import Any
from urllib.parse import urlsplit

PAUSE_S = 0.1
LINE_LIMIT_S = 3.0
HEAD_END = b"\r\n\r\n"


class Refused(Exception):
    """The service refused a submission for a reason that no repetition will change."""


class Load:
    """So many clients at once post to one address. `acknowledged` lists the acknowledged intents in order."""

    def __init__(self, url: str, clients: int, *, answer_limit_s: float = LINE_LIMIT_S) -> None:
        parts = urlsplit(url)
        assert parts.hostname is not None, "the front has an address"
        self._host, self._port = parts.hostname, parts.port or 80
        self._answer_limit_s = answer_limit_s
        self._clients = clients
        self._wanted: asyncio.Queue[tuple[str, bytes]] = asyncio.Queue()
        self._asked = 0
        self._tasks: list[asyncio.Task[None]] = []
        self.acknowledged: list[str] = []
        self.repeats = 0  # requests that were sent again
        self.last_trouble: deque[str] = deque(maxlen=5)

    def start(self) -> None:
        self._tasks = [asyncio.create_task(self._work(), name="load") for _ in range(self._clients)]

    def want(self, intent_id: str, body: dict[str, Any]) -> None:
        self._asked += 1
        self._wanted.put_nowait((intent_id, json.dumps(body).encode()))

    @property
    def is_done(self) -> bool:
        """Whether every wanted intent was acknowledged."""
        return len(self.acknowledged) == self._asked

    def check(self) -> None:
        """Raise the error that ended a client, if any: no client should end."""
        for task in self._tasks:
            if task.done():
                task.result()

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _work(self) -> None:
        connection = Connection(self._host, self._port)
        try:
            while True:
                intent_id, body = await self._wanted.get()
                while not await self._acknowledged(connection, body):
                    self.repeats += 1
                    await asyncio.sleep(PAUSE_S)
                self.acknowledged.append(intent_id)
        finally:
            connection.close()

    async def _acknowledged(self, connection: Connection, body: bytes) -> bool:
        """Send it once. False: send it again, even if it was perhaps stored, because intents are idempotent.

        Raises Refused if a repetition would not help.
        """
        try:
            async with asyncio.timeout(self._answer_limit_s):
                status, said = await connection.post("/v1/intents", body)
        except (OSError, EOFError, ValueError, TimeoutError, asyncio.LimitOverrunError) as error:
            self.last_trouble.append(type(error).__name__)
            connection.close()
            return False
        if status >= 500:
            self.last_trouble.append(f"{status} {said[:200]!r}")
        elif status != 200:
            raise Refused(f"{status} {said[:200]!r}")
        return status == 200


class Connection:
    """One persistent connection, opened when needed. After an error close it: the next call opens another."""

    def __init__(self, host: str, port: int) -> None:
        self._host, self._port = host, port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def post(self, path: str, body: bytes) -> tuple[int, bytes]:
        head = f"POST {path} HTTP/1.1\r\nHost: {self._host}\r\nContent-Type: application/json\r\n"
        return await self._exchange(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)

    async def get(self, path: str) -> tuple[int, bytes]:
        return await self._exchange(f"GET {path} HTTP/1.1\r\nHost: {self._host}\r\n\r\n".encode())

    async def _exchange(self, request: bytes) -> tuple[int, bytes]:
        if self._streams is None:
            self._streams = await asyncio.open_connection(self._host, self._port)
        reader, writer = self._streams
        writer.write(request)
        await writer.drain()
        head = (await reader.readuntil(HEAD_END)).decode("latin-1").lower().split("\r\n")
        fields = dict(line.split(": ", 1) for line in head[1:] if ": " in line)
        said = await reader.readexactly(int(fields.get("content-length", 0)))
        if fields.get("connection") == "close":
            self.close()
        return int(head[0].split(" ")[1]), said

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None
