"""An intent stored by a follower: how long until the leader starts its attempt, with notifications and without.

Both instants are the database's: created_at and the attempt's started_at. There is no setting that turns the
notifications off, so the follower's sessions find another pg_notify first, which tells nobody.
"""

from __future__ import annotations

import random
import time
from urllib.parse import quote

import httpx

from bench.report import Finding, quantile
from bench.submission.ground import TARGET, Ground

REFRESH_MS = 1000.0
BEYOND_MS_MAX = 100.0
TOLD_P50_MS_MAX = 20.0
DONE_LIMIT_S = 30.0
TELLS_NOBODY = """
CREATE SCHEMA untold;
CREATE FUNCTION untold.pg_notify(text, text) RETURNS void LANGUAGE sql AS 'SELECT'"""
PATH = "-c search_path=untold,public,pg_catalog"
SPANS = """
SELECT 1000 * extract(epoch FROM a.started_at - i.created_at)::float8
  FROM submission_intents AS i JOIN submission_attempts AS a ON a.intent_id = i.intent_id AND a.attempt_number = 1
 WHERE i.intent_id LIKE %s"""


def measure(ground: Ground) -> list[Finding]:
    ground.admin.execute(TELLS_NOBODY)
    leader = ground.instance("leader")
    leader.wait_for("schedule_rebuilt")
    told = spans_ms(ground, "told", ground.bench.dsn_of("told"))
    untold_dsn = ground.bench.dsn_of("untold") + f"&options={quote(PATH)}"
    untold = spans_ms(ground, "untold", untold_dsn)
    name = "follower-submitted intent to attempt start"
    limit_ms = REFRESH_MS + BEYOND_MS_MAX
    return [
        Finding(f"{name}, with NOTIFY, p50", quantile(told, 0.5), "ms", TOLD_P50_MS_MAX, detail={"intents": len(told)}),
        Finding("  p99", quantile(told, 0.99), "ms"),
        Finding(f"{name}, refresh only, p99", quantile(untold, 0.99), "ms", limit_ms, detail={"intents": len(untold)}),
        Finding("  p50", quantile(untold, 0.5), "ms"),
    ]


def spans_ms(ground: Ground, who: str, dsn: str) -> list[float]:
    """At random instants, so that every moment between two refreshes is met."""
    probes = ground.sizes.probes
    follower = ground.instance(who, dsn)
    ground.tell(f"pickup: {probes} intents to a follower ({who})")
    with httpx.Client(base_url=follower.url) as client:
        for number in range(probes):
            time.sleep(random.uniform(0, 2 * ground.sizes.probe_every_s))
            submit(client, f"{who}-{number}")
    give_up_s = time.monotonic() + DONE_LIMIT_S
    while len(spans := ground.admin.execute(SPANS, [f"{who}-%"]).fetchall()) < probes:
        if time.monotonic() > give_up_s:
            raise TimeoutError(f"{len(spans)} of {probes} intents were attempted")
        time.sleep(0.1)
    follower.kill()
    return [row[0] for row in spans]


def submit(client: httpx.Client, intent_id: str) -> None:
    payload = {"referenceId": intent_id, "to": "+4930123456", "message": "Your parcel comes today."}
    body = {"intentId": intent_id, "submissionTarget": TARGET, "payload": payload}
    client.post("/v1/intents", json=body).raise_for_status()
