"""One gateway call against real servers, good and bad, and what it is taken for."""

import asyncio
import contextlib
import datetime as dt
import json
import re
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from submission_manager.fake_gateway import Behaviour, FakeGateway
from submission_manager.gateway_client import GatewayClient
from submission_manager.http.server import Listening
from submission_manager.model.contracts import Contract, GatewayType, Policy
from submission_manager.model.intents import REASON_CHARS_MAX
from submission_manager.model.outcomes import Answer, Outcome
from submission_manager.outgoing import Outgoing, header_text
from submission_manager.ports import Started

NOW = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
SMS = {"referenceId": "r", "to": "+4912345", "message": "hello"}


def started(url: str, payload: Any = SMS, kind: GatewayType = GatewayType.SMS, intent_id: str = "a") -> Started:
    contract = Contract("t", kind, url, Policy.MAX_ATTEMPTS, ("invalid_request",), max_attempts=3)
    raw = payload if isinstance(payload, bytes) or payload is None else json.dumps(payload).encode()
    return Started(intent_id, 2, contract, raw, NOW, NOW)


@asynccontextmanager
async def listening(app: Any) -> AsyncIterator[str]:
    server = Listening(app, "127.0.0.1", 0, request_timeout_s=5, drain_timeout_s=1)
    await server.start()
    try:
        yield f"http://127.0.0.1:{server.port}"
    finally:
        await server.stop()


async def called(one: Started, limit_s: float = 5.0) -> Outcome:
    async with aclosing(Outgoing()) as outgoing:
        return await GatewayClient(outgoing).submit(one, limit_s)


@asynccontextmanager
async def raw_gateway(answer: bytes, *, then_hang: bool = False) -> AsyncIterator[str]:
    """Answers these bytes to anything, and hangs up or does not."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        if then_hang:
            await reader.read()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


def http(body: bytes, head: bytes = b"HTTP/1.1 200 OK") -> bytes:
    return head + b"\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)


async def test_the_fake_provider_decides_by_what_a_message_says():
    gateway = FakeGateway()
    cases: list[tuple[GatewayType, dict[str, Any], str | None]] = [
        (GatewayType.SMS, SMS, None),
        (GatewayType.SMS, SMS | {"to": "Anna"}, "invalid_recipient"),
        (GatewayType.SMS, SMS | {"message": " "}, "invalid_message"),
        (GatewayType.SMS, SMS | {"message": "will FAIL"}, "provider_failure"),
        (GatewayType.SMS, {"to": "1"}, "invalid_request"),
        (GatewayType.PUSH, {"referenceId": "r", "token": "t", "title": "x"}, None),
        (GatewayType.PUSH, {"referenceId": "r", "token": "UNREGISTERED-1"}, "unregistered_token"),
        (GatewayType.PUSH, {"referenceId": "r", "token": "t", "body": "FAIL"}, "provider_failure"),
        (GatewayType.PUSH, {"referenceId": "r"}, "invalid_request"),
    ]
    async with listening(gateway) as url:
        for kind, payload, reason in cases:
            outcome = await called(started(url + "/", payload, kind))
            assert outcome == Outcome(Answer.REJECTED if reason else Answer.ACCEPTED, reason), payload


async def test_payload_and_key_arrive_as_they_are_and_every_call_is_on_record(tmp_path):
    record = tmp_path / "calls.jsonl"
    gateway = FakeGateway(record=str(record))
    odd = "ä/ü 50% x"
    async with listening(gateway) as url:
        for intent_id in ("plain", odd, odd):
            await called(started(url, intent_id=intent_id))
        await called(started(url, None))
    assert gateway.calls.by_key == {"plain/2": 1, f"{odd}/2": 2, "a/2": 1}
    assert gateway.calls.by_intent[odd] == 2
    lines = [json.loads(line) for line in record.read_text().splitlines()]
    assert [(line["key"], line["attemptNumber"], line["call"]) for line in lines] == [
        ("plain/2", 2, 1), (f"{odd}/2", 2, 1), (f"{odd}/2", 2, 2), ("a/2", 2, 1),
    ]  # fmt: skip


async def test_the_bytes_and_headers_of_a_call():
    seen: list[tuple[dict[bytes, bytes], bytes]] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        body = b""
        while True:
            message = await receive()
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        seen.append((dict(scope["headers"]), body))
        await send({"type": "http.response.start", "status": 200, "headers": [(b"set-cookie", b"a=b")]})
        await send({"type": "http.response.body", "body": b'{"status":"accepted"}'})

    async with listening(app) as url, aclosing(Outgoing()) as outgoing:
        client = GatewayClient(outgoing)
        for _ in range(2):
            await client.submit(started(url, b'{ "a":1.0 }'), 5)
    headers, body = seen[1]
    assert body == b'{ "a":1.0 }'
    assert (headers[b"idempotency-key"], headers[b"content-type"]) == (b"a/2", b"application/json")
    assert b"cookie" not in headers


BAD = {
    "500": (http(b"{}", b"HTTP/1.1 500 Oops"), "gateway answered 500"),
    "a redirect": (http(b"", b"HTTP/1.1 302 Found\r\nLocation: http://elsewhere"), "gateway answered 302"),
    "html": (http(b"<html>"), "not a JSON object"),
    "a list": (http(b"[]"), "not a JSON object"),
    "nothing": (http(b""), "not a JSON object"),
    "no utf-8": (http(b'{"status":"\xff"}'), "not a JSON object"),
    "no status": (http(b'{"reason":"x"}'), "without a status"),
    "an empty status": (http(b'{"status":""}'), "without a status"),
    "an unknown status": (http(b'{"status":"queued"}'), "unknown status: queued"),
    "a status of another type": (http(b'{"status":[1]}'), "unknown status: a list"),
    "rejected without reason": (http(b'{"status":"rejected"}'), "rejected without a reason"),
    "rejected with a reason of another type": (http(b'{"status":"rejected","reason":7}'), "rejected without a reason"),
    "too long": (http(b'{"status":"accepted","x":"' + b"x" * 100_000 + b'"}'), "more than 65536 bytes"),
    "compressed": (http(b"\x1f\x8b", b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip"), "encoding"),
    "no http": (b"SSH-2.0-OpenSSH\r\n", "connection broke"),
    "cut off": (b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{", "connection broke"),
}


@pytest.mark.parametrize("what", BAD)
async def test_an_answer_that_makes_no_sense_is_an_error_in_words(what):
    answer, says = BAD[what]
    async with raw_gateway(answer) as url:
        outcome = await called(started(url))
    assert outcome.answer is Answer.ERROR
    assert says in str(outcome.error)
    assert "127.0.0.1" not in str(outcome.error)


async def test_an_over_long_reason_is_cut_and_characters_no_database_takes_are_dropped():
    reason = json.dumps("a\0\ud83d" + "x" * 5000).encode()
    async with raw_gateway(http(b'{"status":"rejected","reason":%s}' % reason.replace(b"\\ud83d", b""))) as url:
        outcome = await called(started(url))
    assert outcome.answer is Answer.REJECTED
    assert str(outcome.reason).startswith("axxx")
    assert len(str(outcome.reason)) <= REASON_CHARS_MAX


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{"])
async def test_a_gateway_that_hangs_is_given_up_in_time(answer):
    async with raw_gateway(answer, then_hang=True) as url:
        outcome = await called(started(url), limit_s=0.2)
    assert outcome == Outcome(Answer.ERROR, error="gateway: no answer within 0.2 s")


async def test_an_answer_without_an_end_is_read_up_to_its_limit_only():
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n{")
        with contextlib.suppress(ConnectionError):
            while True:
                writer.write(b" " * 65536)
                await writer.drain()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        outcome = await called(started(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"), limit_s=20)
    assert outcome.error == "gateway answered with more than 65536 bytes"


def test_two_keys_never_become_the_same_header():
    texts = ["ä", "%C3%A4", "%25C3%25A4", "a b", "a%20b", "a+b", "a/1", "a\\1"]
    headers = [header_text(text) for text in texts]
    assert len(set(headers)) == len(texts)
    assert all(header.isascii() for header in headers)
    assert header_text("order-7/1") == "order-7/1"


async def test_nobody_there_is_an_error_without_the_address():
    outcome = await called(started("http://user:hunter2@127.0.0.1:1"))
    assert outcome == Outcome(Answer.ERROR, error="gateway: cannot connect (refused)")
    hopeless = replace(started("http://h"), intent_id="a\nb")
    assert (await called(hopeless)).answer is Answer.ERROR


@pytest.mark.parametrize(
    ("number", "says"), [(socket.EAI_NONAME, "unknown host"), (socket.EAI_AGAIN, "its name could not be resolved")]
)
async def test_a_host_that_cannot_be_found_is_told_as_such(monkeypatch, number, says):
    def not_found(*_: object, **__: object) -> None:
        raise socket.gaierror(number, "of secret.example")

    monkeypatch.setattr(socket, "getaddrinfo", not_found)
    outcome = await called(started("http://user:hunter2@secret.example"))
    assert outcome.error == f"gateway: cannot connect ({says})"


async def test_what_is_wrong_with_tls_is_told_without_the_address(tmp_path):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(self_signed(tmp_path))
    async with await asyncio.start_server(lambda *_: None, "127.0.0.1", 0, ssl=context) as server:
        outcome = await called(started(f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"))
    assert outcome.error == "gateway: cannot connect (TLS: self-signed certificate)"
    async with listening(FakeGateway()) as url:
        outcome = await called(started(url.replace("http:", "https:")))
    assert re.fullmatch(r"gateway: cannot connect \(TLS: \w+\)", str(outcome.error))


def self_signed(folder: Path) -> Path:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "gateway.example")])
    made = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number(), NOW, NOW.replace(2099))
    file = folder / "gateway.pem"
    plain = serialization.NoEncryption()
    pem, pkcs8 = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    file.write_bytes(made.sign(key, hashes.SHA256()).public_bytes(pem) + key.private_bytes(pem, pkcs8, plain))
    return file


async def test_the_fake_gateway_can_misbehave():
    async with listening(FakeGateway(Behaviour(error_share=1.0))) as url:
        assert (await called(started(url))).error == "gateway answered 500"
    async with listening(FakeGateway(Behaviour(garbage_share=1.0))) as url:
        assert "not a JSON object" in str((await called(started(url))).error)
    async with listening(FakeGateway(Behaviour(delay_min_s=0.001, delay_max_s=0.002))) as url:
        assert (await called(started(url))).answer is Answer.ACCEPTED
        for word, says in (("GARBAGE", "JSON"), ("ERROR", "500"), ("SILENT", "reason"), ("HANG", "no answer")):
            outcome = await called(started(url, SMS | {"message": word}), limit_s=0.3)
            assert (outcome.answer, says in str(outcome.error)) == (Answer.ERROR, True), word
        assert len(str((await called(started(url, SMS | {"message": "LONG"}))).reason)) == REASON_CHARS_MAX
