"""A new leader with very many pending intents: the time and the memory to read them, and what a refresh then costs."""

from __future__ import annotations

import threading
import time

import httpx

from bench.report import Finding
from bench.submission.ground import TARGET, Ground
from bench.submission.processes import Instance

REBUILD_S_MAX = 15.0
MEMORY_MB_MAX = 600.0
REFRESH_MS_MAX = 10.0
REBUILD_LIMIT_S = 180.0
REFRESH = "submission_schedule_refresh_seconds"
CHUNK = 100_000
LOOK_EVERY_S = 0.02
# Due tomorrow, so that nothing of it is executed; ids as long as those of most clients.
LOAD = """
INSERT INTO submission_intents
    (intent_id, submission_target, payload, payload_hash, gateway_type, gateway_url, policy, max_attempts,
     terminal_outcomes, status, attempt_count, created_at, updated_at, last_modified_at, next_attempt_at)
SELECT gen_random_uuid()::text, %(target)s, payload, sha256(payload), 'sms', %(gateway)s, 'max_attempts', 3,
       '["invalid_recipient"]', 'pending', 0, clock.now, clock.now, clock.now, clock.now + interval '1 day'
  FROM (SELECT convert_to(json_build_object('referenceId', n, 'to', '+4930123456', 'message', md5(n::text))::text,
                          'UTF8') AS payload, clock_timestamp() AS now
          FROM generate_series(%(from)s, %(to)s) AS n) AS clock"""


def measure(ground: Ground) -> list[Finding]:
    intents = ground.sizes.pending
    load(ground, intents)
    with ground.lease_held() as release:
        instance = ground.instance("rebuild", SM_SCHEDULE_REFRESH_INTERVAL="100ms")
        before_mb = instance.memory_mb
        ground.tell(f"rebuild: {intents} intents are read")
        with Asking(instance) as asking:
            release()
            told = instance.wait_for("schedule_rebuilt", REBUILD_LIMIT_S)
    if told["intents"] != intents:
        raise RuntimeError(f"the schedule has {told['intents']} of {intents} intents")
    after_mb, peak_mb = instance.memory_mb, instance.memory_peak_mb
    found = [
        Finding(f"rebuild with {intents} pending intents", told["seconds"], "s", REBUILD_S_MAX),
        Finding("  memory of the instance, at most", peak_mb, "MB", MEMORY_MB_MAX),
        Finding("    before", before_mb, "MB"),
        Finding("    after", after_mb, "MB"),
        Finding("  longest answer of /healthz meanwhile", asking.longest_ms, "ms"),
    ]
    return [*found, *idle_refresh(ground, instance, intents)]


def load(ground: Ground, intents: int) -> None:
    for begin in range(0, intents, CHUNK):
        ground.tell(f"rebuild: {begin} of {intents} intents are written")
        given = {"target": TARGET, "gateway": ground.gateway.url, "from": begin + 1}
        ground.admin.execute(LOAD, {**given, "to": min(begin + CHUNK, intents)})
    ground.admin.execute("VACUUM ANALYZE submission_intents")
    ground.settle()


def idle_refresh(ground: Ground, instance: Instance, intents: int) -> list[Finding]:
    ground.tell(f"rebuild: idle refreshes for {ground.sizes.refresh_s:g} s")
    before = instance.counted()
    time.sleep(ground.sizes.refresh_s)
    after = instance.counted()
    grown = {name: value - before.get(name, 0.0) for name, value in after.items() if name.startswith(REFRESH)}
    count = grown[f"{REFRESH}_count"]
    within = grown[f'{REFRESH}_bucket{{le="{REFRESH_MS_MAX / 1000:g}"}}'] / count
    name = f"idle refresh beside {intents} pending intents, mean"
    return [
        Finding(name, 1000 * grown[f"{REFRESH}_sum"] / count, "ms", REFRESH_MS_MAX, detail={"refreshes": count}),
        Finding(f"  of {count:.0f} within {REFRESH_MS_MAX:g} ms", 100 * within, "%"),
    ]


class Asking:
    """Asks /healthz again and again: whoever reads must not keep the others waiting."""

    def __init__(self, instance: Instance) -> None:
        self._url = f"{instance.url}/healthz"
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._ask, daemon=True)
        self.longest_ms = 0.0

    def _ask(self) -> None:
        with httpx.Client(timeout=REBUILD_LIMIT_S) as client:
            while not self._is_over.wait(LOOK_EVERY_S):
                began_s = time.perf_counter()
                client.get(self._url)
                self.longest_ms = max(self.longest_ms, 1000 * (time.perf_counter() - began_s))

    def __enter__(self) -> Asking:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._is_over.set()
        self._thread.join()
