"""The demo's load balancer if there is no HAProxy: gives connections to the instances in turn, skips dead ones."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Sequence

CONNECT_LIMIT_S = 0.5
CHUNK_BYTES = 65_536

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class RoundRobin:
    """Listens on a free port of `host`. It does not read HTTP: a client whose connection breaks opens another."""

    def __init__(self, host: str, ports: Sequence[int]) -> None:
        self._host = host
        self._ports = ports
        self._turns = itertools.cycle(ports)
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.Task[None]] = set()

    async def start(self) -> int:
        self._server = await asyncio.start_server(self._accept, self._host, 0)
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for task in self._open:
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._serve((reader, writer)), name="front")
        self._open.add(task)
        task.add_done_callback(self._open.discard)

    async def _serve(self, client: Streams) -> None:
        instance = await self._connected()
        try:
            if instance is not None:
                ways = [asyncio.create_task(_pour(client, instance)), asyncio.create_task(_pour(instance, client))]
                try:
                    await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    for way in ways:
                        way.cancel()
        finally:
            for end in (client, instance):
                if end is not None:
                    end[1].close()

    async def _connected(self) -> Streams | None:
        for _ in self._ports:
            with contextlib.suppress(OSError, TimeoutError):
                async with asyncio.timeout(CONNECT_LIMIT_S):
                    return await asyncio.open_connection(self._host, next(self._turns))
        return None


async def _pour(source: Streams, sink: Streams) -> None:
    with contextlib.suppress(OSError):
        while chunk := await source[0].read(CHUNK_BYTES):
            sink[1].write(chunk)
            await sink[1].drain()
