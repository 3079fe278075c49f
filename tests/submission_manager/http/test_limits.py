"""Clients that send too much, too slowly or nothing at all; raw sockets where a client library would be too polite."""

import asyncio
import json
import socket

import pytest

from submission_manager.http import refusals
from submission_manager.http.server import bound, connections_max
from tests.submission_manager.http.parts import Running, running, until

HEAD = b"POST /v1/intents HTTP/1.1\r\nHost: x\r\n"
BODY = b'{"intentId":"a","submissionTarget":"sms.realtime","payload":"%s"}'


class Raw:
    """One connection, byte by byte."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    @classmethod
    async def to(cls, service: Running) -> "Raw":
        return cls(*await asyncio.open_connection("127.0.0.1", service.listening.port))

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def chunk(self, data: bytes) -> None:
        await self.send(b"%x\r\n%s\r\n" % (len(data), data))

    async def answer(self) -> tuple[int, bytes]:
        """The status and everything up to the end of the connection or of the body."""
        head = await self.reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        return int(head.split()[1]), await self.reader.readexactly(length)

    async def is_over(self) -> bool:
        try:
            return await self.reader.read() == b""
        except ConnectionResetError:
            return True


@pytest.fixture
def short_linger(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refusals, "LINGER_S", 0.05)


def code(body: bytes) -> str:
    return str(json.loads(body)["error"]["code"])


async def test_a_body_announced_as_too_large_is_refused_before_any_of_it_is_sent(short_linger):
    async with running(body_limit=1000) as service:
        raw = await Raw.to(service)
        await raw.send(HEAD + b"Content-Length: 10000000\r\nExpect: 100-continue\r\n\r\n")
        status, body = await raw.answer()
        assert (status, code(body)) == (413, "body_too_large")
        assert await raw.is_over()


async def test_a_chunked_body_is_refused_once_it_is_too_large_however_small_its_chunks(short_linger):
    async with running(body_limit=1000) as service:
        raw = await Raw.to(service)
        await raw.send(HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
        for _ in range(11):
            await raw.chunk(b"x" * 100)
        status, body = await raw.answer()
        assert (status, code(body)) == (413, "body_too_large")
        assert await raw.is_over()


async def test_ten_megabytes_of_chunks_are_refused_and_not_read_to_the_end():
    async with running() as service:
        raw = await Raw.to(service)
        await raw.send(HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
        sent = 0
        try:
            async with asyncio.timeout(5):
                while sent < 100 << 20:
                    await raw.chunk(b"x" * 65536)
                    sent += 65536
        except ConnectionError:
            pass
        assert sent < 50 << 20
        assert (await service.client.get("/healthz")).status_code == 200


async def test_a_client_library_hears_413_for_ten_megabytes():
    async with running() as service:
        answer = await service.client.post("/v1/intents", content=BODY % (b"x" * (10 << 20)))
        assert (answer.status_code, code(answer.content)) == (413, "body_too_large")


async def test_a_body_of_exactly_the_limit_is_taken_whole_and_in_chunks():
    body = BODY % (b"x" * 900)
    async with running(body_limit=len(body)) as service:
        assert (await service.client.post("/v1/intents", content=body)).status_code == 200
        raw = await Raw.to(service)
        await raw.send(HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
        for start in range(0, len(body), 100):
            await raw.chunk(body[start : start + 100])
        await raw.chunk(b"")
        assert (await raw.answer())[0] == 200
        assert (await service.client.post("/v1/intents", content=body + b" ")).status_code == 413


async def test_a_body_that_stops_arriving_is_given_up():
    async with running(request_timeout="300ms") as service:
        raw = await Raw.to(service)
        await raw.send(HEAD + b"Content-Length: 100\r\n\r\n{")
        status, body = await raw.answer()
        assert (status, code(body)) == (408, "request_timeout")
        assert await raw.is_over()


@pytest.mark.parametrize("said", [b"", b"POST /v1/int", HEAD])
async def test_a_connection_that_brings_no_request_is_closed(said):
    async with running(request_timeout="300ms") as service:
        raw = await Raw.to(service)
        await raw.send(said)
        assert await raw.is_over()


async def test_a_second_request_that_trickles_on_a_kept_connection_is_closed_too():
    async with running(request_timeout="300ms") as service:
        raw = await Raw.to(service)
        await raw.send(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        assert await raw.answer() == (200, b"ok")
        await raw.send(b"GET /hea")
        assert await raw.is_over()


async def test_a_slow_answer_is_not_taken_for_a_slow_request():
    async with running(request_timeout="200ms") as service:
        waiting = asyncio.create_task(service.submit("a", "?waitSeconds=20"))
        await until(lambda: len(service.intake.looks) > 4)
        service.intake.change("a", attempt_count=1)
        assert (await waiting).status_code == 200


async def test_a_client_that_leaves_in_the_middle_of_its_body_harms_nobody():
    async with running() as service:
        raw = await Raw.to(service)
        await raw.send(HEAD + b"Content-Length: 100\r\n\r\n{")
        raw.writer.close()
        assert (await service.submit("b")).status_code == 200
        assert set(service.intake.rows) == {"b"}
        assert service.facts.told == []


async def test_a_drain_answers_whoever_waits_and_ends_in_time():
    async with running() as service:
        waiting = asyncio.create_task(service.submit("a", "?waitSeconds=30"))
        await until(lambda: bool(service.intake.looks))
        await service.app.drain()
        assert (await waiting).json()["status"] == "pending"
        assert (await service.client.get("/readyz")).status_code == 503
        await service.listening.stop()


def test_answers_are_not_held_up_by_nagles_delay():
    with bound("127.0.0.1", 0) as listener:
        assert listener.proto == socket.IPPROTO_TCP  # what asyncio looks at before it sets TCP_NODELAY


async def test_beyond_the_last_place_a_connection_is_told_so_at_once_and_the_log_hears_of_it_once():
    async with running(max_connections=2, request_timeout="1s") as service:
        silent = [await Raw.to(service) for _ in range(2)]
        for _ in range(5):
            status, body = await (await Raw.to(service)).answer()
            assert (status, code(body)) == (503, "too_many_connections")
        assert [event for event, _ in service.facts.told] == ["connections_refused"]
        series = 'submission_requests_total{reason="too_many_connections",status="503"} 5.0'
        assert series in service.metrics.exposition()[0].decode()
        assert all([await one.is_over() for one in silent])  # they brought no request in time
        assert (await service.client.get("/healthz")).status_code == 200


def test_places_leave_room_for_the_database_and_the_calls():
    assert connections_max(None, 65_536, 128) == 10_000
    assert connections_max(None, 1024, 128) == 640
    assert connections_max(9000, 1024, 128) == 640
    assert connections_max(50, 1024, 128) == 50
    assert connections_max(None, 256, 128) == 64


@pytest.mark.parametrize("said", [b"nonsense\r\n\r\n", HEAD + b"Content-Length: x\r\n\r\n", HEAD + b"\x00: y\r\n\r\n"])
async def test_what_is_no_http_is_refused_in_json(said):
    async with running() as service:
        raw = await Raw.to(service)
        await raw.send(said)
        status, body = await raw.answer()
        assert (status, code(body)) == (400, "invalid_request")
        assert await raw.is_over()


async def test_a_request_framed_in_two_ways_is_the_last_of_its_connection():
    async with running() as service:
        raw = await Raw.to(service)
        await raw.send(HEAD + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n")
        await raw.chunk(BODY % b"x")
        await raw.chunk(b"")
        assert (await raw.answer())[0] == 200
        assert await raw.is_over()
