"""The demo's story: a load, a kill -9, a freeze, a clean stop; then all records are compared."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fencehold import Unavailable
from submission_manager.demo.audit import Audit, Glance, prepare
from submission_manager.demo.evidence import Verdict, verdict
from submission_manager.demo.load import Load
from submission_manager.demo.stage import HOST, PROGRAM, Instance, RoundRobin, Stage, free_port, haproxy, haproxy_config

CLIENTS = 10
INTENTS_PER_S = 25.0
MAX_ATTEMPTS = 4
LEASES_LONG = 6.0  # how many leases the story takes, start included
LOOK_EVERY_S = 0.1
PATIENCE_LEASES = 10.0

Tell = Callable[[str, str], None]  # a sentence and its style


@dataclass
class Failover:
    after: str
    seconds: float  # until the start of the next leader's first attempt was recorded


@dataclass
class Scene:
    """What a screen may show at any moment: the processes of the demo, and the newest counts."""

    stage: Stage
    load: Load
    front: str
    glance: Glance | None = None
    failovers: list[Failover] = field(default_factory=list)


def settings(database: str, registry: Path, lease_s: float) -> dict[str, str]:
    return {
        "SM_DATABASE": database, "SM_REGISTRY": str(registry), "SM_HOST": HOST,
        "SM_LEASE_DURATION": f"{lease_s:g}", "SM_RENEW_INTERVAL": f"{lease_s / 3:g}",
        "SM_ACQUIRE_INTERVAL": f"{lease_s / 2:g}", "SM_SCHEDULE_REFRESH_INTERVAL": "250ms",
        "SM_RETRY_DELAY": "500ms", "SM_GATEWAY_TIMEOUT": "3s", "SM_DRAIN_TIMEOUT": "5s",
    }  # fmt: skip


class Story:
    """One run of the demo in `folder`; `scene` is set once everything is started."""

    def __init__(self, database: str, folder: Path, seconds: float, tell: Tell) -> None:
        self._database, self._folder, self._tell = database, folder, tell
        self._lease_s = seconds / LEASES_LONG
        self._calls = folder / "calls.jsonl"
        self._audit: Audit
        self.scene: Scene | None = None

    async def run(self) -> Verdict:
        async with self._staged() as scene:
            self.scene = scene
            watching = asyncio.create_task(self._watch(scene))
            feeding = asyncio.create_task(self._feed(scene.load))
            try:
                await self._chapters(scene)
                feeding.cancel()
                await self._until(lambda seen: self._is_over(scene, seen), "all intents to be over")
                evidence = await self._audit.evidence()
            finally:
                for task in (watching, feeding):
                    task.cancel()
                await asyncio.gather(watching, feeding, return_exceptions=True)
            calls = [str(json.loads(line)["key"]) for line in self._calls.read_text("utf-8").splitlines()]
            return verdict(scene.load.acknowledged, evidence, calls)

    # --- the stage ---

    @asynccontextmanager
    async def _staged(self) -> AsyncIterator[Scene]:
        async with AsyncExitStack() as stack:
            self._audit = await prepare(self._database)
            stack.push_async_callback(self._audit.close)
            registry = self._folder / "registry.json"
            stage = Stage(self._folder, settings(self._database, registry, self._lease_s))
            stack.push_async_callback(stage.close)
            gateway = free_port()
            registry.write_text(_registry(gateway), "utf-8")
            await stage.spawn(
                *PROGRAM, "gateway", "--port", str(gateway), "--record", str(self._calls), "--delay-min", "20ms",
                "--delay-max", "150ms",
            )  # fmt: skip
            ports = [free_port() for _ in range(3)]
            stage.instances = [await stage.begin(port) for port in ports]
            front, url = await _front(stage, stack, ports)
            for one in stage.instances:
                await stage.until_up(one)
            load = Load(url, CLIENTS, answer_limit_s=max(1.0, self._lease_s / 2))
            load.start()
            stack.push_async_callback(load.stop)
            self._tell(f"three instances behind {front}, one database, one lease of {self._lease_s:g} s", "")
            yield Scene(stage, load, front)

    async def _feed(self, load: Load) -> None:
        number = 0
        while True:
            number += 1
            load.want(*_intent(number))
            await asyncio.sleep(1 / INTENTS_PER_S)

    async def _watch(self, scene: Scene) -> None:
        """Read the newest counts for `scene` at intervals. Ignores errors, such as a busy database.

        The steps of the story that wait have limits of their own.
        """
        while True:
            with contextlib.suppress(Exception):
                scene.glance = await self._audit.glance()
            await asyncio.sleep(LOOK_EVERY_S)

    # --- the chapters ---

    async def _chapters(self, scene: Scene) -> None:
        first = await self._until(lambda seen: seen.recorded > 0, "the first attempt")
        self._tell(f"{first.holder_id} leads with epoch {first.epoch} and submits; all three take intents", "green")
        await self._quiet()
        await self._killed(scene)
        await self._quiet()
        await self._frozen(scene)
        await self._quiet()
        await self._stopped(scene)
        await self._quiet()

    async def _quiet(self) -> None:
        await asyncio.sleep(self._lease_s / 2)

    async def _leader(self, scene: Scene) -> tuple[Instance, int]:
        """Return the leader and its epoch, at a moment with an attempt under way.

        Only at such a moment does a failure test something.
        """
        seen = await self._until(lambda seen: seen.marked > 0 and seen.started > 0, "an attempt under way")
        return next(one for one in scene.stage.instances if one.holder_id == seen.holder_id), seen.epoch or 0

    async def _killed(self, scene: Scene) -> None:
        leader, epoch = await self._leader(scene)
        self._tell(f"kill -9 {leader.holder_id}, the leader, with attempts under way", "red")
        leader.process.kill()
        began_s = time.monotonic()
        await leader.process.wait()
        fresh = await scene.stage.replace(leader)
        await self._failed_over(scene, "kill -9", epoch, began_s)
        await scene.stage.until_up(fresh)
        self._tell(f"{fresh.holder_id} was started in its place", "")

    async def _frozen(self, scene: Scene) -> None:
        leader, epoch = await self._freeze(scene)
        self._tell(f"{leader.holder_id}, the leader, is frozen (SIGSTOP) with attempts under way", "red")
        await self._failed_over(scene, "freeze", epoch, time.monotonic())
        await self._quiet()
        leader.thaw()
        self._tell(f"{leader.holder_id} is thawed (SIGCONT): it may not write any more", "red")

        async def follows() -> bool:
            return await leader.answers("/readyz") and not await leader.answers("/leaderz")

        await scene.stage.until(follows, f"{leader.holder_id} to follow")
        self._tell(f"{leader.holder_id} has seen that its time was over, and follows", "yellow")

    async def _freeze(self, scene: Scene) -> tuple[Instance, int]:
        """Freeze the leader at a moment without a write, and return it and its epoch.

        A process that is frozen inside a write would keep SQLite's only write lock.
        """
        while True:
            leader, epoch = await self._leader(scene)
            await leader.freeze()
            if not await self._audit.is_locked():
                return leader, epoch
            leader.thaw()
            await asyncio.sleep(LOOK_EVERY_S)

    async def _stopped(self, scene: Scene) -> None:
        leader, epoch = await self._leader(scene)
        self._tell(
            f"{leader.holder_id}, the leader, is asked to stop (SIGTERM): it finishes and gives the lease back", ""
        )
        leader.process.send_signal(signal.SIGTERM)
        began_s = time.monotonic()
        await self._failed_over(scene, "clean stop", epoch, began_s)
        await leader.process.wait()
        fresh = await scene.stage.replace(leader)
        await scene.stage.until_up(fresh)

    async def _failed_over(self, scene: Scene, after: str, epoch: int, began_s: float) -> None:
        seen = await self._until(lambda seen: (seen.epoch or 0) > epoch and seen.started > 0, "another leader")
        took_s = time.monotonic() - began_s
        scene.failovers.append(Failover(after, round(took_s, 2)))
        self._tell(
            f"{seen.holder_id} leads with epoch {seen.epoch}; its first attempt began {took_s:.1f} s later", "green"
        )

    # --- waiting ---

    async def _until(self, holds: Callable[[Glance], bool], what: str) -> Glance:
        assert self.scene is not None, "staged first"
        limit_s = 20.0 + PATIENCE_LEASES * self._lease_s
        try:
            async with asyncio.timeout(limit_s):
                while self.scene.glance is None or not holds(self.scene.glance):
                    self.scene.load.check()
                    await asyncio.sleep(LOOK_EVERY_S / 2)
                return self.scene.glance
        except TimeoutError:
            end = self.scene.stage.log_end()
            raise Unavailable(f"The demo waited {limit_s:g} s in vain for {what}. {end}", code="demo_stuck") from None

    def _is_over(self, scene: Scene, seen: Glance) -> bool:
        return scene.load.is_done and seen.pending == 0 and seen.intents >= len(scene.load.acknowledged)


async def _front(stage: Stage, stack: AsyncExitStack, ports: list[int]) -> tuple[str, str]:
    """Start HAProxy or the built-in load balancer in front of these ports. Returns its name and its address."""
    program, config = haproxy(), haproxy_config()
    if program is None or config is None:
        front = RoundRobin(HOST, ports)
        stack.push_async_callback(front.close)
        return "a built-in front (HAProxy is not installed)", f"http://{HOST}:{await front.start()}"
    bind, leader_bind = free_port(), free_port()
    addresses = {f"SM_{n}": f"{HOST}:{port}" for n, port in enumerate(ports, 1)}
    await stage.spawn(
        program, "-db", "-f", str(config), SM_BIND=f"{HOST}:{bind}", SM_LEADER_BIND=f"{HOST}:{leader_bind}", **addresses
    )
    return "HAProxy", f"http://{HOST}:{bind}"


def _registry(gateway_port: int) -> str:
    target = {
        "submissionTarget": "sms.demo", "gatewayType": "sms", "gatewayUrl": f"http://{HOST}:{gateway_port}",
        "policy": "max_attempts", "maxAttempts": MAX_ATTEMPTS, "terminalOutcomes": ["invalid_recipient"],
    }  # fmt: skip
    return json.dumps({"targets": [target]})


def _intent(number: int) -> tuple[str, dict[str, Any]]:
    """Return an intent's id and body. Most intents are accepted; one in ten fails until its last attempt.

    One in twenty is rejected.
    """
    intent_id = f"demo-{number:05}"
    to, message = ("nobody" if number % 20 == 7 else "4930123456"), ("FAIL" if number % 10 == 3 else "hello")
    payload = {"referenceId": intent_id, "to": to, "message": message}
    return intent_id, {"intentId": intent_id, "submissionTarget": "sms.demo", "payload": payload}
