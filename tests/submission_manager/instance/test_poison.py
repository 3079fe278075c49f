"""Poison through the whole service: whatever one intent brings, the leader stays and the others go on."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from submission_manager.fake_gateway import ERROR, GARBAGE, HANG, LONG, SILENT
from submission_manager.model.intents import REASON_CHARS_MAX
from tests.submission_manager.demo.scene import Scene, a_scene, target

ENDS = {
    "LONG": (2, "max_attempts"),
    "GARBAGE": (2, "max_attempts"),
    "ERROR": (2, "max_attempts"),
    "HANG": (1, "one_shot"),
}


@contextlib.contextmanager
def a_receiver_that_hangs() -> Iterator[str]:
    """Connections are taken by the kernel; nobody reads."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(100)
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/hook"


def poison(intent_id: str, message: str = "hello", to: str = "sms") -> tuple[str, dict[str, Any]]:
    payload = {"referenceId": intent_id, "to": "+49301234", "message": message}
    return intent_id, {"intentId": intent_id, "submissionTarget": to, "payload": payload}


async def history(scene: Scene, intent_id: str) -> dict[str, Any]:
    return dict((await scene.client.get(f"{scene.haproxy.url}/v1/intents/{intent_id}/history")).json())


async def webhook_over(scene: Scene, intent_id: str) -> tuple[Any, ...]:
    async def found() -> bool:
        return await row() != ("pending", None)

    async def row() -> tuple[Any, ...]:
        (seen,) = await scene.rows(
            f"SELECT webhook_status, webhook_error FROM submission_intents WHERE intent_id = '{intent_id}'"
        )
        return seen

    while not await found():  # noqa: ASYNC110 - the test's own limit ends it
        await asyncio.sleep(0.1)
    return await row()


@pytest.mark.needs("haproxy")
async def test_no_poison_costs_the_leader_its_lease_or_the_others_their_turn(postgres_url: str, tmp_path: Path) -> None:
    async with a_scene(postgres_url, tmp_path) as scene:
        with a_receiver_that_hangs() as hook:
            targets = [
                target(scene.gateway, maxAttempts=2),
                target(scene.gateway, "hooked", webhook={"url": hook}),
                {k: v for k, v in target(scene.gateway, "once", policy="one_shot").items() if k != "maxAttempts"},
            ]
            await scene.start(targets, SM_GATEWAY_TIMEOUT="1s", SM_LEASE_DURATION="60s", SM_RENEW_INTERVAL="20s")
            scene.want(
                poison("LONG", LONG), poison("GARBAGE", GARBAGE), poison("ERROR", ERROR), poison("HANG", HANG, "once")
            )
            scene.want(poison("SILENT", SILENT, "once"), poison("hooked", to="hooked"), poison("Case"), poison("case"))
            # A proxy may cut off whoever is still sending; the answer itself is tested without one.
            with contextlib.suppress(httpx.ReadError, httpx.WriteError):
                huge = await scene.client.post(f"{scene.haproxy.url}/v1/intents", content=b"x" * 10_000_000, timeout=20)
                assert huge.status_code == 413
            scene.want(*(poison(f"fine-{number}") for number in range(20)))
            await scene.until_over(28)
            for name, (attempts, why) in ENDS.items():
                told = await history(scene, name)
                assert (len(told["attempts"]), told["intent"]["exhaustedReason"]) == (attempts, why), told
            reasons = [one["outcomeReason"] for one in (await history(scene, "LONG"))["attempts"]]
            assert [len(reason) for reason in reasons] == [REASON_CHARS_MAX] * 2
            for name in ("Case", "case", "hooked", "fine-19"):
                assert (await history(scene, name))["intent"]["status"] == "accepted"
            status, error = await webhook_over(scene, "hooked")
            assert (status, "no answer within" in error) == ("failed", True)
            found = await scene.verdict()
            assert (found.is_good, found.unknown_outcomes) == (True, 0), found
            glance = await scene.glance()
            assert glance is not None
            assert glance.epoch == 1
