"""Clients that do not give up: each intent is sent again until it is acknowledged, and never after that."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from typing import Any

import httpx

PAUSE_S = 0.1
LINE_LIMIT_S = 3.0


class Refused(Exception):
    """The error for a submission that the service refused for a reason that no repetition will change."""


class Load:
    """Posts intents to one address, from `clients` clients at once.

    `acknowledged` lists the acknowledged intents in order.
    """

    def __init__(self, url: str, clients: int, *, answer_limit_s: float = LINE_LIMIT_S) -> None:
        self._http = http_client(url)
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
        """True once every wanted intent was acknowledged."""
        return len(self.acknowledged) == self._asked

    def check(self) -> None:
        """Raise the error that ended a client, if there is one: no client should end."""
        for task in self._tasks:
            if task.done():
                task.result()

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._http.aclose()

    async def _work(self) -> None:
        while True:
            intent_id, body = await self._wanted.get()
            while not await self._acknowledged(body):
                self.repeats += 1
                await asyncio.sleep(PAUSE_S)
            self.acknowledged.append(intent_id)

    async def _acknowledged(self, body: bytes) -> bool:
        """Send the intent once. Returns True if the service acknowledged it, False if it must be sent again.

        A repetition is safe, because submissions are idempotent. Raises Refused if a repetition would not help.
        """
        try:
            async with asyncio.timeout(self._answer_limit_s):
                answer = await self._http.post("/v1/intents", content=body)
        except (httpx.HTTPError, TimeoutError) as error:
            self.last_trouble.append(type(error).__name__)
            return False
        if answer.status_code != 200:
            self.last_trouble.append(f"{answer.status_code} {answer.content[:200]!r}")
        if 200 != answer.status_code < 500:
            raise Refused(self.last_trouble[-1])
        return answer.status_code == 200


def http_client(url: str) -> httpx.AsyncClient:
    """Return a client of one of the demo's own servers, over plain HTTP; its caller limits the time."""
    return httpx.AsyncClient(base_url=url, timeout=None, trust_env=False, verify=False)  # noqa: S113
