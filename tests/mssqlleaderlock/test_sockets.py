"""The socket of a connection is known by its traffic, seen to end, and cut; on real sockets."""

import asyncio
import os
import socket
from collections.abc import Iterator

import pytest

from fencehold.backends.sqlserver import sockets
from mssqlleaderlock.sockets import Wire, found

pytestmark = pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="the system does not list sockets")


class Ends:
    """Two ends of one connection: ours, and the server's."""

    def __init__(self, listener: socket.socket) -> None:
        self.ours = socket.create_connection(listener.getsockname())
        self.server, _ = listener.accept()

    def answer(self, padding: int) -> str:
        """As a driver and a server do: `padding` characters of two bytes, and what stands around them."""
        self.server.sendall(b"x\0" * padding + b"around")
        left = 2 * padding + len(b"around")
        while left:
            left -= len(self.ours.recv(left))
        return "answered"

    def close(self) -> None:
        self.ours.close()
        self.server.close()


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening


@pytest.fixture
def ends(listener: socket.socket) -> Iterator[list[Ends]]:
    made = [Ends(listener) for _ in range(3)]
    yield made
    for one in made:
        one.close()


def port_of(ends: Ends) -> int:
    return int(ends.ours.getpeername()[1])


def test_of_several_connections_to_one_server_the_right_one_is_found(ends: list[Ends]) -> None:
    for one in ends:
        answer, wire = found(port_of(one), one.answer)
        assert answer == "answered"
        assert wire is not None
        assert wire._handle.getsockname() == one.ours.getsockname()
        wire._handle.close()


def test_a_connection_elsewhere_is_not_taken_for_it_and_neither_is_one_of_two(ends: list[Ends]) -> None:
    one, other, _ = ends
    assert found(port_of(one) - 1, one.answer)[1] is None

    def both(padding: int) -> str:
        other.answer(padding)
        return one.answer(padding)

    assert found(port_of(one), both)[1] is None


def test_where_the_system_lists_no_sockets_none_is_found(ends: list[Ends], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sockets, "_OPEN_FILES", "/nowhere")
    assert found(port_of(ends[0]), ends[0].answer) == ("answered", None)


def test_no_handle_on_anothers_socket_is_kept(ends: list[Ends]) -> None:
    before = len(os.listdir("/proc/self/fd"))
    _, wire = found(port_of(ends[0]), ends[0].answer)
    assert wire is not None
    assert len(os.listdir("/proc/self/fd")) == before + 1
    wire.cut()
    assert len(os.listdir("/proc/self/fd")) == before


def wire_of(ends: Ends) -> Wire:
    return Wire(ends.ours.dup())


async def test_the_servers_end_is_seen_at_once(ends: list[Ends]) -> None:
    wire = wire_of(ends[0])
    with wire.watched() as ended:
        assert not ended.is_set()
        ends[0].server.close()
        async with asyncio.timeout(10):
            await ended.wait()
    wire.cut()


async def test_what_the_server_says_unasked_is_no_end_and_does_not_keep_the_loop_busy(ends: list[Ends]) -> None:
    wire = wire_of(ends[0])
    with wire.watched() as ended:
        ends[0].server.sendall(b"by the way")
        while wire._watching is not None:  # noqa: ASYNC110 - until the loop has looked at it once
            await asyncio.sleep(0)
        assert not ended.is_set()
    assert ends[0].ours.recv(100) == b"by the way"  # still there for the driver
    wire.cut()


async def test_a_cut_reaches_the_server_and_whoever_hangs_on_the_socket(ends: list[Ends]) -> None:
    wire = wire_of(ends[0])
    hanging = asyncio.create_task(asyncio.to_thread(ends[0].ours.recv, 1))
    await asyncio.sleep(0)
    wire.cut()
    assert await asyncio.wait_for(hanging, 10) == b""
    assert await asyncio.to_thread(ends[0].server.recv, 1) == b""
    with wire.watched() as ended:
        assert ended.is_set()


async def test_a_cut_while_it_is_watched_leaves_nothing_in_the_loop(ends: list[Ends]) -> None:
    wire = wire_of(ends[0])
    loop = asyncio.get_running_loop()
    fd = wire._handle.fileno()
    with wire.watched():
        wire.cut()
        assert loop.remove_reader(fd) is False
    wire.cut()  # again does no harm
