"""Real instances, started, asked, killed and frozen; a gateway that answers when told; and what the database says."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx

from tests.across_packages.processes import execute
from tests.servers import freezing
from tests.servers.process import free_port

ROOT = Path(__file__).parents[3]
COMMAND = [sys.executable, "-m", "submission_manager.cli", "serve"]
LIMIT_S = 180.0
LOOK_EVERY_S = 0.05
LEASE = "submission-manager-executor"
HOLD = "HOLD"

SETTINGS = {
    "SM_LEASE_DURATION": "2s", "SM_RENEW_INTERVAL": "500ms", "SM_ACQUIRE_INTERVAL": "1s",
    "SM_SCHEDULE_REFRESH_INTERVAL": "200ms", "SM_RETRY_DELAY": "300ms", "SM_GATEWAY_TIMEOUT": "20s",
}  # fmt: skip
#: A server that only speaks T-SQL may take seconds to read the first statements of each of its sessions.
SQL_SERVER_SETTINGS = {
    "SM_LEASE_DURATION": "30s", "SM_RENEW_INTERVAL": "8s", "SM_ACQUIRE_INTERVAL": "3s", "SM_DATABASE_TIMEOUT": "30s",
    "SM_GATEWAY_TIMEOUT": "200s",
}  # fmt: skip


class Gateway:
    """Accepts; a message that says HOLD is answered only when the test lets it, once for all later ones."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.answers_held = threading.Event()
        gateway = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"] or 0))
                gateway.calls.append(self.headers["Idempotency-Key"])
                if HOLD in body.decode() and not gateway.answers_held.is_set():
                    gateway.answers_held.wait(LIMIT_S)
                answer = json.dumps({"status": "accepted", "gatewayMessageId": "m"}).encode()
                try:
                    self.send_response(200)
                    self.send_header("Content-Length", str(len(answer)))
                    self.end_headers()
                    self.wfile.write(answer)
                except OSError:  # whoever asked is dead
                    return

            def log_message(self, format: str, *args: Any) -> None:
                return

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def calls_of(self, intent_id: str) -> list[str]:
        return [key for key in self.calls if key.rpartition("/")[0] == intent_id]

    def close(self) -> None:
        self.answers_held.set()
        self._server.shutdown()
        self._server.server_close()


class Instance:
    """One `submission-manager serve`."""

    def __init__(self, holder_id: str, environment: dict[str, str], log: Path, client: httpx.AsyncClient) -> None:
        self.holder_id = holder_id
        self.address = f"http://127.0.0.1:{environment['SM_PORT']}"
        self._log = log
        self._client = client
        self._child = subprocess.Popen(
            COMMAND, cwd=ROOT, env={**os.environ, **environment}, stdout=subprocess.DEVNULL, stderr=log.open("wb")
        )

    async def get(self, path: str) -> httpx.Response:
        return await self._client.get(self.address + path)

    async def submit(self, intent_id: str, message: str = "hello", wait_s: int = 0) -> dict[str, Any]:
        payload = {"referenceId": intent_id, "to": "+49301234", "message": message}
        body = {"intentId": intent_id, "submissionTarget": "sms", "payload": payload}
        answer = await self._client.post(f"{self.address}/v1/intents?waitSeconds={wait_s}", json=body)
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    async def history(self, intent_id: str) -> dict[str, Any]:
        return dict((await self.get(f"/v1/intents/{intent_id}/history")).json())

    async def until_over(self, *intent_ids: str) -> list[dict[str, Any]]:
        ended = [await until(lambda one=one: self._over(one), f"{one} is not over") for one in intent_ids]  # type: ignore[misc]
        return list(ended)

    async def _over(self, intent_id: str) -> dict[str, Any] | None:
        found = await self.history(intent_id)
        return found if found["intent"]["status"] != "pending" else None

    async def is_up(self) -> bool:
        assert self._child.poll() is None, self._log.read_text()
        try:
            return (await self.get("/readyz")).status_code == 200
        except httpx.TransportError:
            return False

    async def leads(self) -> bool:
        return (await self.get("/leaderz")).status_code == 200

    async def until_leading(self) -> None:
        await until(self.leads, f"{self.holder_id} does not lead")

    async def until_following(self) -> None:
        await until(self._follows, f"{self.holder_id} still leads")

    async def _follows(self) -> bool:
        return not await self.leads()

    async def counted(self, name: str) -> float:
        lines = (await self.get("/metrics")).text.splitlines()
        return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(name))

    async def until_counted(self, name: str, total: float) -> None:
        """A counter is raised after the commit that others see, so it is waited for; it never passes `total`."""

        async def is_so() -> bool:
            counted = await self.counted(name)
            assert counted <= total, f"{name} is {counted}, above {total}"
            return counted == total

        await until(is_so, f"{name} is not {total}")

    def log(self) -> str:
        return self._log.read_text()

    def freeze(self, url: str = "") -> None:
        """With the address of a SQLite file: at a moment at which it is not being written by this instance."""
        freezing.freeze(self._child.pid, url)

    def thaw(self) -> None:
        self._child.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        self._child.kill()
        self._child.wait()

    async def stop(self) -> None:
        code = await self.told_to_stop()
        assert code == 0, self._log.read_text()

    async def told_to_stop(self) -> int:
        """How it ends."""
        self._child.send_signal(signal.SIGTERM)
        return await asyncio.to_thread(self._child.wait, LIMIT_S)


class Fleet:
    def __init__(self, url: str, folder: Path, gateway: Gateway, client: httpx.AsyncClient) -> None:
        self.url, self.gateway = url, gateway
        self._folder, self._client = folder, client
        self._registry = folder / "registry.json"
        target = {
            "submissionTarget": "sms", "gatewayType": "sms", "gatewayUrl": gateway.url, "policy": "max_attempts",
            "maxAttempts": 3, "terminalOutcomes": ["invalid_recipient"],
        }  # fmt: skip
        self._registry.write_text(json.dumps({"targets": [target]}))
        self.instances: list[Instance] = []

    async def start(self, *holder_ids: str, **settings: str) -> list[Instance]:
        """All at once; they answer when this returns."""
        begun = [self._begin(holder_id, settings) for holder_id in holder_ids]
        for one in begun:
            await until(one.is_up, f"{one.holder_id} is not up")
        return begun

    def _begin(self, holder_id: str, settings: dict[str, str]) -> Instance:
        own = {
            "SM_DATABASE": self.url, "SM_REGISTRY": str(self._registry), "SM_PORT": str(free_port()),
            "SM_HOLDER_ID": holder_id,
        }  # fmt: skip
        slow = SQL_SERVER_SETTINGS if self.url.startswith("mssql") else {}
        chosen = {**SETTINGS, **slow, **own, **settings}
        instance = Instance(holder_id, chosen, self._folder / f"{holder_id}.log", self._client)
        self.instances.append(instance)
        return instance

    async def leader(self) -> tuple[Instance, list[Instance]]:
        """Who leads, and the others."""

        async def found() -> Instance | None:
            leading = [one for one in self.instances if await one.leads()]
            assert len(leading) < 2, "two leaders"
            return leading[0] if leading else None

        leader: Instance = await until(found, "nobody leads")
        return leader, [one for one in self.instances if one is not leader]

    async def rows(self, sql: str) -> list[tuple[Any, ...]]:
        return await execute(self.url, sql)

    async def lease(self) -> tuple[Any, ...]:
        """Holder, epoch, acquired, expires."""
        rows = await self.rows(
            f"SELECT holder_id, lease_epoch, acquired_at, expires_at FROM submission_manager_leases"
            f" WHERE lease_name = '{LEASE}'"
        )
        return rows[0]


async def until(
    holds: Callable[[], Any], complaint: str, *, limit_s: float = LIMIT_S, look_every_s: float = LOOK_EVERY_S
) -> Any:
    """What `holds` answers, as soon as that is something."""
    try:
        async with asyncio.timeout(limit_s):
            while not (answer := await holds()):  # noqa: ASYNC110 - another process's state has no event here
                await asyncio.sleep(look_every_s)
            return answer
    except TimeoutError:
        raise AssertionError(complaint) from None


@contextmanager
def a_gateway() -> Iterator[Gateway]:
    gateway = Gateway()
    try:
        yield gateway
    finally:
        gateway.close()


@asynccontextmanager
async def a_fleet(url: str, folder: Path) -> AsyncIterator[Fleet]:
    """None of its processes outlives the block, frozen or not."""
    with a_gateway() as gateway:
        async with httpx.AsyncClient(timeout=LIMIT_S) as client:
            fleet = Fleet(url, folder, gateway, client)
            try:
                yield fleet
            finally:
                for one in fleet.instances:
                    one.kill()
