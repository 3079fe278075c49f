"""The leader is killed, or stopped: when does the follower that takes over start its first attempt?

Intents are submitted to the follower all the time. Every instant is the database's: the signal, the lease's end, the
takeover, the attempt's start.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import random
import threading
import time
from collections.abc import Iterator

import httpx

from bench.report import Finding, quantile
from bench.submission.ground import LEASE, Ground
from bench.submission.pickup import submit
from bench.submission.processes import Instance

BEYOND_MS_MAX = 500.0
STOP_MS_MAX = 500.0
SUBMIT_EVERY_S = 0.02
LOOK_EVERY_S = 0.02
LEASE_S = 3.0
TIMES = {"SM_LEASE_DURATION": f"{LEASE_S:g}s", "SM_RENEW_INTERVAL": "1s", "SM_ACQUIRE_INTERVAL": "2s"}
TAKEOVER_LIMIT_S = LEASE_S + 20.0
FIRST = """
SELECT min(a.started_at) FROM submission_attempts AS a
 WHERE a.started_at >= (SELECT acquired_at FROM submission_manager_leases WHERE lease_name = %s)"""
LAST = "SELECT max(started_at) FROM submission_attempts WHERE started_at < %s"
EXPIRES_AT = "SELECT expires_at FROM submission_manager_leases WHERE lease_name = %s"


class Fleet:
    """A leader and a follower; whoever goes is replaced by a new follower."""

    def __init__(self, ground: Ground) -> None:
        self._ground = ground
        self._count = 0
        self.leader = self._new()
        self.leader.wait_for("schedule_rebuilt")
        self.follower = self._new()
        self.follower.wait_for("leader_acquire_failed")

    def _new(self) -> Instance:
        self._count += 1
        return self._ground.instance(f"instance-{self._count}", **TIMES)

    def taken_over(self) -> tuple[dt.datetime, float]:
        """The first attempt under the new leader, and how long it took to rebuild its schedule."""
        rebuild_s = float(self.follower.wait_for("schedule_rebuilt", TAKEOVER_LIMIT_S)["seconds"])
        give_up_s = time.monotonic() + TAKEOVER_LIMIT_S
        while (first := self._ground.value(FIRST, LEASE)) is None:
            if time.monotonic() > give_up_s:
                raise TimeoutError("the new leader started nothing")
            time.sleep(LOOK_EVERY_S)
        return first, rebuild_s

    def replace(self) -> None:
        self.leader, self.follower = self.follower, self._new()
        self.follower.wait_for("leader_acquire_failed")


def measure(ground: Ground) -> list[Finding]:
    fleet = Fleet(ground)
    beyond, gaps = [], []
    for index in range(ground.sizes.kills):
        ground.tell(f"failover: kill -9, {index + 1} of {ground.sizes.kills}")
        beyond.append(killed_ms(ground, fleet))
    stops = []
    for index in range(ground.sizes.stops):
        ground.tell(f"failover: clean stop, {index + 1} of {ground.sizes.stops}")
        took_ms, gap_ms = stopped_ms(ground, fleet)
        stops.append(took_ms)
        gaps.append(gap_ms)
    detail = {"rounds_ms": beyond, "lease_s": LEASE_S}
    return [
        Finding("kill -9: first attempt after the lease's end and the rebuild, max", max(beyond), "ms", BEYOND_MS_MAX,
                detail=detail),
        Finding("  p50", quantile(beyond, 0.5), "ms"),
        Finding("clean stop: signal to first attempt of the next leader, max", max(stops), "ms", STOP_MS_MAX,
                detail={"rounds_ms": stops}),
        Finding("  p50", quantile(stops, 0.5), "ms"),
        Finding("  without any attempt, max", max(gaps), "ms", detail={"rounds_ms": gaps}),
    ]  # fmt: skip


def killed_ms(ground: Ground, fleet: Fleet) -> float:
    with submitting(fleet.follower):
        time.sleep(random.uniform(0.3, 1.5))  # anywhere between two renewals
        fleet.leader.kill()
        expires_at = ground.value(EXPIRES_AT, LEASE)
        first, rebuild_s = fleet.taken_over()
    fleet.replace()
    return 1000 * (float((first - expires_at).total_seconds()) - rebuild_s)


def stopped_ms(ground: Ground, fleet: Fleet) -> tuple[float, float]:
    with submitting(fleet.follower):
        time.sleep(random.uniform(0.3, 1.5))
        asked_at = ground.value("SELECT clock_timestamp()")
        fleet.leader.ask_to_stop()
        first, _ = fleet.taken_over()
        last = ground.value(LAST, first)
    fleet.leader.ended()
    fleet.replace()
    return 1000 * (first - asked_at).total_seconds(), 1000 * (first - last).total_seconds()


@contextlib.contextmanager
def submitting(instance: Instance) -> Iterator[None]:
    """So that there is always something to attempt."""
    is_over = threading.Event()

    def submit_on() -> None:
        with httpx.Client(base_url=instance.url) as client:
            while not is_over.wait(SUBMIT_EVERY_S):
                submit(client, f"i-{random.getrandbits(64):x}")

    thread = threading.Thread(target=submit_on, daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()
