"""Intents taken in through one instance, against a bare service with one INSERT for each, under the same load."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import urlsplit

from bench.children import Child, children
from bench.report import Finding
from bench.submission.ground import TARGET, Ground
from submission_manager.stores.opening import POOL_SIZE

RATIO_MIN = 0.6
CLIENTS = 32
# As many as the service has, and as many as there are clients: the more wait for one flush, the more it stores.
BARE = {"bare": POOL_SIZE, "wide": CLIENTS}
WARM_S = 0.5


@dataclass(frozen=True)
class Ran:
    per_s: float
    p50_ms: float
    p99_ms: float
    client_cores: float  # what the client itself took: near 1 it would be the client that is measured


def measure(ground: Ground) -> list[Finding]:
    rounds: list[dict[str, Ran]] = []
    with children() as start:
        ports = {who: bare_port(ground, start, count) for who, count in BARE.items()}
        with ground.lease_held():  # intake alone: the bare service executes nothing either
            ports["ours"] = port_of(ground.instance("intake").url)
            loads = {who: start("bench.submission.load", str(ports[who]), str(CLIENTS), TARGET) for who in ports}
            for index in range(ground.sizes.rounds):
                ground.tell(f"intake: round {index + 1} of {ground.sizes.rounds}")
                order = list(loads)[index % 3 :] + list(loads)[: index % 3]
                rounds.append({who: ran(ground, loads[who]) for who in order})
        ground.tell("intake: while it executes them too")
        leading = ran(ground, loads["ours"])
    return findings(rounds, leading)


def bare_port(ground: Ground, start: Callable[..., Child], connections: int) -> int:
    service = start("bench.submission.bare_service", ground.bench.dsn_of("bare"), str(connections))
    return int(service.wait_for("serving")["port"])


def ran(ground: Ground, load: Child) -> Ran:
    ground.settle()
    load.say(f"run {WARM_S}")
    load.wait_for("ran")
    load.say(f"run {ground.sizes.load_s}")
    told = load.wait_for("ran")
    took_s = told["took_s"]
    return Ran(told["answers"] / took_s, told["p50_ms"], told["p99_ms"], told["cpu_s"] / took_s)


def findings(rounds: list[dict[str, Ran]], leading: Ran) -> list[Finding]:
    found: list[Finding] = []
    for who, count in BARE.items():
        ratios = [one["ours"].per_s / one[who].per_s for one in rounds]
        name = f"intake against bare Starlette + psycopg on {count} connections, {CLIENTS} clients"
        detail = {"ratios": ratios}
        found.append(Finding(name, statistics.median(ratios), "x", RATIO_MIN, at_least=True, detail=detail))
    for who in ("ours", *BARE):
        label = "submission-manager" if who == "ours" else f"bare, {BARE[who]} connections"
        found += [
            Finding(f"  {label}", middle(rounds, who, "per_s"), "/s"),
            Finding("    p50", middle(rounds, who, "p50_ms"), "ms"),
            Finding("    p99", middle(rounds, who, "p99_ms"), "ms"),
            Finding("    cores that the clients took", middle(rounds, who, "client_cores"), ""),
        ]
    return [
        *found,
        Finding("  submission-manager, executing them meanwhile", leading.per_s, "/s"),
        Finding("    p99", leading.p99_ms, "ms"),
    ]


def middle(rounds: list[dict[str, Ran]], who: str, what: str) -> float:
    return float(statistics.median(getattr(one[who], what) for one in rounds))


def port_of(url: str) -> int:
    port = urlsplit(url).port
    assert port is not None, "the service names its port"
    return port
