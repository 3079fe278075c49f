"""Clients in a process of their own: each has one connection and sends its next request when the last is answered.

python -m bench.submission.load PORT CONNECTIONS TARGET

Bytes on sockets and no HTTP library: the client shares two cores with what it measures, and must not be what is
measured. Word: `run SECONDS`. Tells: ready, ran (answers, took_s, p50_ms, p99_ms, cpu_s).
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
import uuid
from dataclasses import dataclass, field

from bench.report import quantile
from bench.telling import tell, words

HEAD_END = b"\r\n\r\n"
LENGTH = b"content-length: "
OK = b"HTTP/1.1 200 "


@dataclass
class Run:
    """Of all connections together."""

    ends_s: float
    over: asyncio.Future[None]
    busy: int
    took_ms: list[float] = field(default_factory=list)

    def left(self) -> None:
        self.busy -= 1
        if not self.busy and not self.over.done():
            self.over.set_result(None)


class Client(asyncio.Protocol):
    def __init__(self, target: str) -> None:
        self._target = target
        self._name = uuid.uuid4().hex[:20]
        self._sent = 0
        self._sent_s = 0.0
        self._answer = b""
        self._run: Run | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport), "a stream"
        self._transport = transport

    def begin(self, run: Run) -> None:
        self._run = run
        self._send()

    def _send(self) -> None:
        self._sent += 1
        intent_id = f"{self._name}-{self._sent:08d}"
        payload = {"referenceId": intent_id, "to": "+4930123456", "message": "Your parcel comes today."}
        body = json.dumps({"intentId": intent_id, "submissionTarget": self._target, "payload": payload}).encode()
        head = "POST /v1/intents HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\nContent-Length: "
        self._sent_s = time.perf_counter()
        self._transport.write(head.encode() + str(len(body)).encode() + HEAD_END + body)

    def data_received(self, data: bytes) -> None:
        self._answer += data
        head, end, body = self._answer.partition(HEAD_END)
        if not end or len(body) < int(head.partition(LENGTH)[2].partition(b"\r\n")[0]):
            return
        now_s = time.perf_counter()
        run, answer, self._answer = self._run, self._answer, b""
        assert run is not None, "an answer comes after a question"
        if not answer.startswith(OK):
            run.over.set_exception(RuntimeError(f"answered with {answer[:300]!r}"))
            return
        run.took_ms.append(1000 * (now_s - self._sent_s))
        if now_s < run.ends_s:
            self._send()
        else:
            run.left()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._run is not None and not self._run.over.done():
            self._run.over.set_exception(RuntimeError("a connection was closed"))


async def main() -> None:
    port, count, target = sys.argv[1:]
    loop = asyncio.get_running_loop()
    tell("ready")
    async for word in words():
        # New ones for each run: a service may close those that have said nothing for a while.
        opened = [
            await loop.create_connection(lambda: Client(target), "127.0.0.1", int(port)) for _ in range(int(count))
        ]
        began_s, cpu_s = time.perf_counter(), time.process_time()
        run = Run(began_s + float(word.split()[1]), loop.create_future(), len(opened))
        for _, client in opened:
            client.begin(run)
        await run.over
        took_s = time.perf_counter() - began_s
        tell(
            "ran", answers=len(run.took_ms), took_s=took_s, p50_ms=quantile(run.took_ms, 0.5),
            p99_ms=quantile(run.took_ms, 0.99), cpu_s=time.process_time() - cpu_s,
        )  # fmt: skip
        for transport, _ in opened:
            transport.close()


if __name__ == "__main__":
    asyncio.run(main())
