"""The fault proxy from programs without an event loop: the same verbs, on a thread that ends."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from fencehold.testing.proxy import Fault, ThreadedFaultProxy
from tests.fencehold.testing.line_server import SILENCE_S, LineServer


@contextmanager
def threaded_line_server() -> Iterator[LineServer]:
    started, stop = threading.Event(), asyncio.Event()
    held: dict[str, asyncio.AbstractEventLoop] = {}
    server = LineServer()

    async def live() -> None:
        listener = await asyncio.start_server(server.serve, "127.0.0.1", 0)
        server.port, held["loop"] = listener.sockets[0].getsockname()[1], asyncio.get_running_loop()
        started.set()
        await stop.wait()
        listener.close()

    thread = threading.Thread(target=lambda: asyncio.run(live()))
    thread.start()
    assert started.wait(5)
    try:
        yield server
    finally:
        held["loop"].call_soon_threadsafe(stop.set)
        thread.join(5)


def ask(proxy: ThreadedFaultProxy, line: bytes) -> bytes:
    with socket.create_connection((proxy.host, proxy.port), timeout=5) as connection:
        connection.sendall(line + b"\n")
        return connection.recv(100).strip()


def test_the_threaded_proxy_has_the_same_verbs() -> None:
    with threaded_line_server() as server, ThreadedFaultProxy("127.0.0.1", server.port) as proxy:
        assert ask(proxy, b"one") == b"done one"
        proxy.cut()
        with pytest.raises(ConnectionResetError):
            ask(proxy, b"two")
        proxy.heal()
        proxy.delay(0.05)
        assert ask(proxy, b"three") == b"done three"
        for silent in (proxy.freeze, proxy.drop_answers, proxy.drop_requests):
            silent()
            with socket.create_connection((proxy.host, proxy.port), timeout=SILENCE_S) as connection:
                connection.sendall(b"four\n")
                with pytest.raises(TimeoutError):
                    connection.recv(1)
            proxy.heal()
        assert ask(proxy, b"five") == b"done five"
        assert proxy.counters.connections_refused == 1


def test_the_threaded_proxy_waits_for_a_trip() -> None:
    with threaded_line_server() as server, ThreadedFaultProxy("127.0.0.1", server.port) as proxy:
        trip = proxy.when_seen(b"COMMIT", Fault.CLOSE_ALL)
        with pytest.raises(TimeoutError):
            trip.wait(timeout_s=0.01)
        assert ask(proxy, b"COMMIT") == b""
        trip.wait()
        assert trip.tripped
        assert server.executed == [b"COMMIT"]


def test_the_threaded_proxy_ends_its_thread_and_says_so_afterwards() -> None:
    proxy = ThreadedFaultProxy("127.0.0.1", 1).start()
    proxy.close()
    proxy.close()
    assert "fault-proxy" not in {thread.name for thread in threading.enumerate()}
    with pytest.raises(RuntimeError, match="not running"):
        proxy.heal()


def test_the_threaded_proxy_reports_a_port_it_cannot_have() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(OSError, match="in use"):
        ThreadedFaultProxy("127.0.0.1", 1, listen_port=taken.getsockname()[1]).start()
