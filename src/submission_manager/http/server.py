"""An ASGI application on a port: bounded connections, an orderly end, no signal handlers."""

from __future__ import annotations

import asyncio
import contextlib
import math
import socket
from collections.abc import Iterator
from typing import Any, cast

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from fencehold.model.errors import ConfigurationError

BACKLOG = 2048
HEAD_BYTES_MAX = 16 * 1024
# Above what proxies keep idle connections for, so that they are the ones to close: else a request may cross our close.
KEEP_ALIVE_S = 75
TICK_S = 0.1  # uvicorn's own: ten of them, and the Date header is written anew
TICKS_A_DAY = 864_000


class Listening:
    """A server on its own task of this loop. `stop` lets requests in hand end, within a limit."""

    def __init__(self, app: Any, host: str, port: int, *, request_timeout_s: float, drain_timeout_s: float) -> None:
        self._socket = bound(host, port)
        self.host = host
        self.port: int = self._socket.getsockname()[1]
        self._drain_timeout_s = drain_timeout_s
        connection = type("Bounded", (_Bounded,), {"head_limit_s": request_timeout_s})
        config = uvicorn.Config(
            app, http=connection, ws="none", lifespan="off", log_config=None, access_log=False,
            server_header=False, proxy_headers=False, timeout_keep_alive=KEEP_ALIVE_S, backlog=BACKLOG,
            timeout_graceful_shutdown=max(1, math.ceil(drain_timeout_s)), h11_max_incomplete_event_size=HEAD_BYTES_MAX,
        )  # fmt: skip
        self._server = _Server(config)
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        self._task = asyncio.create_task(self._server.serve(sockets=[self._socket]), name="submission-http")
        is_up = asyncio.ensure_future(self._server.is_up.wait())
        await asyncio.wait([self._task, is_up], return_when=asyncio.FIRST_COMPLETED)
        is_up.cancel()
        if self._task.done():
            self._task.result()

    async def ended(self) -> None:
        """Waits until it serves no more, for whatever reason."""
        assert self._task is not None, "started first"
        await asyncio.wait([self._task])

    async def stop(self) -> None:
        """No new connections; those in hand have the drain timeout."""
        if self._task is None:
            self._socket.close()
            return
        self._server.end()
        await asyncio.wait([self._task], timeout=self._drain_timeout_s + 2.0)
        if not self._task.done():
            self._task.cancel()
            await asyncio.wait([self._task])


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.is_up = asyncio.Event()
        self._asked = asyncio.Event()

    def end(self) -> None:
        self.should_exit = True
        self._asked.set()

    async def main_loop(self) -> None:
        """As the original, but an end that is asked for is not noticed at the next tick only."""
        ticks = 0
        while not await self.on_tick(ticks):
            ticks = (ticks + 1) % TICKS_A_DAY
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(TICK_S):
                    await self._asked.wait()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.is_up.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals are the command's, not the server's."""
        yield


def bound(host: str, port: int) -> socket.socket:
    """The protocol is named: only then does asyncio turn off Nagle's delay, which else holds up every answer's body."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(BACKLOG)
        return listener
    except OSError as error:
        listener.close()
        raise ConfigurationError(
            f"HTTP cannot be served on {host} port {port}: {error.strerror or error}.",
            hint="Give another --port (0 takes a free one) or --host.",
            code="bad_port",
        ) from None


class _OneWrite:
    """A transport that sends what is written in one turn of the loop at once: an answer is one packet, not two."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._parts: list[bytes] = []

    def write(self, data: bytes) -> None:
        if not self._parts:
            self._loop.call_soon(self._flush)
        self._parts.append(data)

    def close(self) -> None:
        self._flush()
        self._transport.close()

    def _flush(self) -> None:
        if self._parts:
            data = b"".join(self._parts)
            self._parts.clear()
            self._transport.write(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class _Bounded(H11Protocol):
    """A connection that must bring a whole request head within the limit; the server itself would wait for ever."""

    head_limit_s = 10.0
    _expected: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(cast("asyncio.Transport", _OneWrite(transport, self.loop)))
        self._expect()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is not None and not cycle.response_complete:
            self._met()
        elif self._expected is None and not self.transport.is_closing():
            self._expect()

    def connection_lost(self, exc: Exception | None) -> None:
        self._met()
        super().connection_lost(exc)

    def _expect(self) -> None:
        self._expected = self.loop.call_later(self.head_limit_s, self._too_slow)

    def _met(self) -> None:
        if self._expected is not None:
            self._expected.cancel()
            self._expected = None

    def _too_slow(self) -> None:
        self._expected = None
        if not self.transport.is_closing():
            self.transport.close()
