"""Three instances behind the real HAProxy, the fake gateway with its record, clients that do not give up, and blows."""

from __future__ import annotations

import asyncio
import itertools
import json
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import psycopg

from submission_manager.demo.audit import Audit, Glance, prepare
from submission_manager.demo.evidence import Verdict, verdict
from submission_manager.demo.load import Load
from tests.across_packages.processes import execute
from tests.servers.haproxy import HaProxy
from tests.servers.process import free_port
from tests.submission_manager.instance.fleet import ROOT, Instance, until

GATEWAY = [sys.executable, "-m", "submission_manager.cli", "gateway"]
CLIENTS = 20
ANSWER_LIMIT_S = 3.0
LOOK_EVERY_S = 0.2
WANTED_PER_LOOK = 10
AT_ONCE_S = 0.01
LIMIT_S = 300.0
MAX_ATTEMPTS = 4

SETTINGS = {
    "SM_LEASE_DURATION": "3s", "SM_RENEW_INTERVAL": "1s", "SM_ACQUIRE_INTERVAL": "1s",
    "SM_SCHEDULE_REFRESH_INTERVAL": "200ms", "SM_RETRY_DELAY": "300ms", "SM_GATEWAY_TIMEOUT": "2s",
    "SM_WEBHOOK_TIMEOUT": "1s",
}  # fmt: skip


class GatewayProcess:
    """`submission-manager gateway`, its calls on record in a file."""

    def __init__(self, folder: Path) -> None:
        self.url = f"http://127.0.0.1:{(port := free_port())}"
        self._record = folder / "calls.jsonl"
        options = ["--port", str(port), "--record", str(self._record), "--delay-min", "5ms", "--delay-max", "60ms"]
        self._child = subprocess.Popen(
            [*GATEWAY, *options], cwd=ROOT, stdout=subprocess.DEVNULL, stderr=(folder / "gateway.log").open("wb")
        )

    def calls(self) -> list[str]:
        return [json.loads(line)["key"] for line in self._record.read_text().splitlines()]

    def close(self) -> None:
        self._child.send_signal(signal.SIGKILL)
        self._child.wait()


class Scene:
    def __init__(
        self, url: str, folder: Path, audit: Audit, gateway: GatewayProcess, client: httpx.AsyncClient
    ) -> None:
        self.url, self.audit, self.gateway, self.client = url, audit, gateway, client
        self._folder = folder
        self._registry = folder / "registry.json"
        self._ports = [free_port() for _ in range(3)]
        self._names = (f"sm-{number:02}" for number in itertools.count(1))
        self.haproxy = HaProxy(self._ports)
        self.instances: list[Instance] = []
        self.load = Load(self.haproxy.url, CLIENTS, answer_limit_s=ANSWER_LIMIT_S)

    # --- the stage ---

    async def start(self, targets: list[dict[str, Any]] | None = None, **settings: str) -> None:
        self._registry.write_text(
            json.dumps({"allowUnsignedWebhooks": True, "targets": targets or [target(self.gateway)]})
        )
        await asyncio.to_thread(self.haproxy.start)
        self._settings = settings
        self.instances = [self._begin(port) for port in self._ports]
        for one in self.instances:
            await until(one.is_up, f"{one.holder_id} is not up")
        self.load.start()

    def _begin(self, port: int) -> Instance:
        holder_id = next(self._names)
        own = {
            "SM_DATABASE": self.url, "SM_REGISTRY": str(self._registry), "SM_PORT": str(port),
            "SM_HOLDER_ID": holder_id,
        }  # fmt: skip
        return Instance(
            holder_id, {**SETTINGS, **own, **self._settings}, self._folder / f"{holder_id}.log", self.client
        )

    async def close(self) -> None:
        await self.load.stop()
        for one in self.instances:
            one.kill()
        await asyncio.to_thread(self.haproxy.close)

    def want(self, *intents: tuple[str, dict[str, Any]]) -> None:
        for intent_id, body in intents:
            self.load.want(intent_id, body)

    # --- what the database says ---

    async def glance(self) -> Glance | None:
        """None while the database is away."""
        try:
            return await self.audit.glance()
        except psycopg.OperationalError:
            return None

    async def until(
        self, holds: Callable[[Glance], bool], complaint: str, look_every_s: float = LOOK_EVERY_S
    ) -> Glance:
        async def look() -> Glance | None:
            self.load.check()
            glance = await self.glance()
            return glance if glance is not None and holds(glance) else None

        found: Glance = await until(look, complaint, look_every_s=look_every_s, limit_s=LIMIT_S)
        return found

    async def rows(self, sql: str) -> list[tuple[Any, ...]]:
        return await execute(self.url, sql)

    async def leader(self) -> tuple[Instance, int]:
        """With attempts under way."""
        glance = await self.until(lambda seen: seen.marked > 0 and seen.started > 0, "nothing is under way")
        assert glance.epoch is not None
        return next(one for one in self.instances if one.holder_id == glance.holder_id), glance.epoch

    async def until_another_works(self, epoch: int) -> None:
        await self.until(lambda seen: (seen.epoch or 0) > epoch and seen.recorded > 0, f"nobody works after {epoch}")

    async def until_over(self, count: int) -> None:
        await self.until(lambda seen: seen.intents == count and seen.pending == 0, f"not all {count} are over")

    # --- blows ---

    async def strike(self, blow: Callable[[], Awaitable[None]], numbers: Iterator[int], at_first: int) -> None:
        """More intents come until the blow is over: the first may all be done before it finds a leader."""
        self.want(*map(intent, itertools.islice(numbers, at_first)))
        blow_struck = asyncio.ensure_future(blow())
        while not blow_struck.done():
            self.want(*map(intent, itertools.islice(numbers, WANTED_PER_LOOK)))
            await asyncio.wait([blow_struck], timeout=LOOK_EVERY_S)
        await blow_struck

    async def kill_leader(self) -> None:
        """kill -9; a new one takes its place at the same address."""
        leader, epoch = await self.leader()
        leader.kill()
        place = self.instances.index(leader)
        self.instances[place] = self._begin(self._ports[place])
        await self.until_another_works(epoch)

    async def freeze_leader(self) -> None:
        """SIGSTOP, and SIGCONT at the worst moment: another leads, and has not yet counted what the first left open."""
        leader, epoch = await self._frozen_leader()
        await self.until(lambda seen: (seen.epoch or 0) > epoch, "nobody else leads", look_every_s=AT_ONCE_S)
        leader.thaw()
        await self.until_another_works(epoch)
        await leader.until_following()

    async def _frozen_leader(self) -> tuple[Instance, int]:
        """At a moment without a write: who is frozen inside one keeps SQLite's only write lock, and nobody goes on."""
        while True:
            leader, epoch = await self.leader()
            leader.freeze()
            if not await self.audit.is_locked():
                return leader, epoch
            leader.thaw()
            await asyncio.sleep(LOOK_EVERY_S)

    async def crash(self, strike: Callable[[], None]) -> None:
        _, epoch = await self.leader()
        await asyncio.to_thread(strike)
        await self.until_another_works(epoch)

    # --- the end ---

    async def verdict(self) -> Verdict:
        evidence = await self.audit.evidence()
        return verdict(self.load.acknowledged, evidence, self.gateway.calls())


def target(gateway: GatewayProcess, name: str = "sms", **others: Any) -> dict[str, Any]:
    return {
        "submissionTarget": name, "gatewayType": "sms", "gatewayUrl": gateway.url, "policy": "max_attempts",
        "maxAttempts": MAX_ATTEMPTS, "terminalOutcomes": ["invalid_recipient"], **others,
    }  # fmt: skip


def intent(number: int) -> tuple[str, dict[str, Any]]:
    """Most are accepted; one in fifty fails until it may no more, one in twenty is rejected."""
    intent_id = f"intent-{number:05}"
    message = "FAIL" if number % 50 == 3 else "hello"
    payload = {"referenceId": intent_id, "to": "nobody" if number % 20 == 7 else "+49301234", "message": message}
    return intent_id, {"intentId": intent_id, "submissionTarget": "sms", "payload": payload}


@asynccontextmanager
async def a_scene(url: str, folder: Path) -> AsyncIterator[Scene]:
    """None of its processes outlives the block, frozen or not."""
    audit = await prepare(url)
    gateway = GatewayProcess(folder)
    limits = httpx.Limits(max_connections=CLIENTS * 2)
    try:
        async with httpx.AsyncClient(timeout=ANSWER_LIMIT_S, limits=limits, trust_env=False) as client:
            scene = Scene(url, folder, audit, gateway, client)
            try:
                yield scene
            finally:
                await scene.close()
    finally:
        gateway.close()
        await audit.close()
