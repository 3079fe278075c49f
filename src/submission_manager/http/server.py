"""Serves an ASGI application on a port: limits connections, stops gracefully, installs no signal handlers."""

from __future__ import annotations

import asyncio
import contextlib
import math
import socket
import sys
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, cast

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from fencehold import ConfigurationError, FactSink, FanOut
from submission_manager.metrics import NO_PLACE, Metrics
from submission_manager.rare_log import RareLog
from submission_manager.settings import CONNECTIONS_MOST

BACKLOG = 2048
# Connections accepted in one turn of the event loop: each is an open file before it can be refused, and when no file is
# left asyncio logs an error once for each of them.
ACCEPTED_AT_ONCE = 16
LOG_EVERY_S = 10.0
CLOSE = (b"connection", b"close")
FULL_BODY = (
    b'{"error":{"code":"too_many_connections","message":"This instance has no place left; try another, or later."}}'
)
FULL = b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\ncontent-length: %d\r\n" % len(FULL_BODY)
FULL += b"retry-after: 1\r\nconnection: close\r\n\r\n" + FULL_BODY
HEAD_BYTES_MAX = 16 * 1024
# Longer than proxies keep idle connections, so that the proxies close them: if we close, a request may be on its way.
KEEP_ALIVE_S = 75
TICK_S = 0.1  # uvicorn's own: it renews the Date header every ten ticks
TICKS_A_DAY = 864_000

FILES_WANTED = 65_536  # more than the most connections and everything else can need
RESERVE = 256  # for the database, files, webhooks, and connections that are just being refused


class Listening:
    """A server in its own task on this event loop. `stop` lets requests under way end, within a limit."""

    def __init__(
        self, app: Any, host: str, port: int, *, request_timeout_s: float, drain_timeout_s: float,
        places: Places | None = None,
    ) -> None:  # fmt: skip
        self._socket = bound(host, port)
        self.port: int = self._socket.getsockname()[1]
        self._drain_timeout_s = drain_timeout_s
        connection = type("Bounded", (_Bounded,), {"head_limit_s": request_timeout_s, "places": places or Places()})
        config = uvicorn.Config(
            app, http=connection, ws="none", lifespan="off", log_config=None, access_log=False,
            server_header=False, proxy_headers=False, timeout_keep_alive=KEEP_ALIVE_S, backlog=ACCEPTED_AT_ONCE,
            timeout_graceful_shutdown=max(1, math.ceil(drain_timeout_s)), h11_max_incomplete_event_size=HEAD_BYTES_MAX,
        )  # fmt: skip
        self._server = _Server(config)
        self.task: asyncio.Task[None] | None = None  # ends with the server, for whatever reason

    async def start(self) -> None:
        self.task = asyncio.create_task(self._server.serve(sockets=[self._socket]), name="submission-http")
        is_up = asyncio.ensure_future(self._server.is_up.wait())
        await asyncio.wait([self.task, is_up], return_when=asyncio.FIRST_COMPLETED)
        is_up.cancel()
        if self.task.done():
            self.task.result()

    async def stop(self) -> None:
        """Accept no new connections; requests under way have the drain timeout to end."""
        if self.task is None:
            self._socket.close()
            return
        self._server.end()
        await asyncio.wait([self.task], timeout=self._drain_timeout_s + 2.0)
        if not self.task.done():
            self.task.cancel()
            await asyncio.wait([self.task])


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.is_up = asyncio.Event()
        self._asked = asyncio.Event()

    def end(self) -> None:
        self.should_exit = True
        self._asked.set()

    async def main_loop(self) -> None:
        """Do what uvicorn's own main loop does, but notice a requested end at once, not only at the next tick."""
        ticks = 0
        while not await self.on_tick(ticks):
            ticks = (ticks + 1) % TICKS_A_DAY
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(TICK_S):
                    await self._asked.wait()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for one in sockets or ():
            one.listen(BACKLOG)  # the kernel may queue more than the loop accepts in one turn
        self.is_up.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Do nothing: the command handles signals, not the server."""
        yield


def bound(host: str, port: int) -> socket.socket:
    """Return a listening socket. Raises ConfigurationError if the address cannot be used.

    The protocol is given explicitly: only then does asyncio disable Nagle's algorithm, which delays each answer's body.
    """
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
    """A transport that sends all writes of one turn of the event loop together: an answer is one packet, not two."""

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


class Places:
    """Limits the number of connections; counts each refused one, and logs them at intervals."""

    def __init__(
        self, most: int = CONNECTIONS_MOST, facts: FactSink | None = None, metrics: Metrics | None = None
    ) -> None:
        self._most, self._metrics = most, metrics
        self._refused = RareLog(facts or FanOut(), "connections_refused", LOG_EVERY_S)

    def has_room(self, taken: int) -> bool:
        if taken >= self._most:
            if self._metrics is not None:
                self._metrics.request(*NO_PLACE)
            self._refused.add("", {"refused": 1}, connections_max=self._most)
        return taken < self._most


def _is_framed_twice(headers: list[tuple[bytes, bytes]]) -> bool:
    """Return whether a request has both headers that tell the body's length. Then the connection must close.

    A proxy may have used the other header, so what follows on such a connection cannot be trusted.
    """
    return {name for name, _ in headers} >= {b"content-length", b"transfer-encoding"} and CLOSE not in headers


class _Bounded(H11Protocol):
    """A connection that is closed if no whole request head arrives within the limit; uvicorn would wait for ever."""

    head_limit_s = 10.0
    places = Places()
    _has_place = True
    _expected: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        if not self.places.has_room(len(self.connections)):
            self._has_place = False
            transport.write(FULL)
            transport.close()
            return
        super().connection_made(cast("asyncio.Transport", _OneWrite(transport, self.loop)))
        self._expect()

    def data_received(self, data: bytes) -> None:
        if not self._has_place:
            return
        super().data_received(data)
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is not None and not cycle.response_complete:
            self._met()
        elif self._expected is None and not self.transport.is_closing():
            self._expect()

    def handle_events(self) -> None:
        super().handle_events()
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is not None and not cycle.response_started and _is_framed_twice(self.headers):
            self.headers.append(CLOSE)  # the server then closes, as if the client had sent this header

    def send_400_response(self, msg: str) -> None:
        """Answer in JSON, like every other refusal."""
        body = b'{"error":{"code":"invalid_request","message":"%s"}}' % msg.encode("ascii")
        head = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body)), CLOSE]
        answer = (h11.Response(status_code=400, headers=head, reason=b"Bad Request"), h11.Data(data=body))
        for event in (*answer, h11.EndOfMessage()):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._has_place:
            return
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


def raise_limit() -> None:
    """Raise the limit on open files as far as this user may."""
    if sys.platform == "win32":
        return
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = FILES_WANTED if hard == resource.RLIM_INFINITY else min(hard, FILES_WANTED)
    if soft != resource.RLIM_INFINITY and soft < most:
        with suppress(ValueError, OSError):  # then the limit stays, and fewer connections are accepted
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def files_max() -> int:
    """Return how many files the process may have open."""
    if sys.platform == "win32":
        return FILES_WANTED
    import resource

    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return FILES_WANTED if soft == resource.RLIM_INFINITY else soft


def connections_max(asked: int | None, files_max: int, calls_max: int) -> int:
    """Return how many connections to allow: `asked`, or CONNECTIONS_MOST if that is None.

    The result is never so high that no file is left for the database and the gateway calls.
    """
    room = max(files_max - RESERVE - calls_max, files_max // 4, 1)
    return min(CONNECTIONS_MOST if asked is None else asked, room)
