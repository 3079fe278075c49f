"""A server that answers lines and remembers them, and a client that listens for silence and resets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from fencehold.testing.proxy import FaultProxy

# Longer than any answer takes here, short enough to wait for silence often.
SILENCE_S = 0.15


class LineServer:
    """Executes lines: remembers each and answers it."""

    def __init__(self) -> None:
        self.executed: list[bytes] = []
        self.port = 0
        self._writers: list[asyncio.StreamWriter] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)
        try:
            while line := await reader.readline():
                self.executed.append(line.strip())
                writer.write(b"done " + line)
        except OSError:
            pass
        finally:
            writer.close()

    async def has_executed(self, line: bytes) -> None:
        async with asyncio.timeout(5):
            while line not in self.executed:  # noqa: ASYNC110 - a list has no event
                await asyncio.sleep(0.005)

    def end_all(self) -> None:
        for writer in self._writers:
            writer.close()


class Client:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def ask(self, line: bytes) -> bytes:
        self.writer.write(line + b"\n")
        return await self.answer()

    async def answer(self) -> bytes:
        return (await asyncio.wait_for(self.reader.readline(), 5)).strip()

    async def hears_nothing(self) -> bool:
        try:
            await asyncio.wait_for(self.reader.read(1), SILENCE_S)
        except TimeoutError:
            return True
        return False

    async def is_reset(self) -> bool:
        try:
            await asyncio.wait_for(self.reader.read(1), 5)
        except ConnectionResetError:
            return True
        return False


Connect = Callable[[], Awaitable[Client]]


@asynccontextmanager
async def line_server() -> AsyncIterator[LineServer]:
    server = LineServer()
    listener = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    server.port = listener.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        listener.close()
        server.end_all()
        await asyncio.sleep(0)


@asynccontextmanager
async def broken_network(answer_within_s: float = 2.0) -> AsyncIterator[tuple[FaultProxy, LineServer, Connect]]:
    clients: list[Client] = []
    async with line_server() as server, FaultProxy("127.0.0.1", server.port, answer_within_s=answer_within_s) as proxy:

        async def connect() -> Client:
            clients.append(Client(*await asyncio.open_connection(proxy.host, proxy.port)))
            return clients[-1]

        try:
            yield proxy, server, connect
        finally:
            for client in clients:
                client.writer.close()
