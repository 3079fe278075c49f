"""python -m bench [leases|locks|outbox|items|submission|sqlite] [--only PART] [--rounds N] [--quick] [-o json]

Starts its own PostgreSQL with default durability, or uses the server of BENCH_DSN (a new database on it; statements
are then not counted, since that needs the server's log). Ends with 1 if a promise was missed.
"""

from __future__ import annotations

import argparse
import os
import sys
from typing import Any

from bench import items, leases, locks, outbox, sqlite, submission
from bench.report import Finding, Progress, as_json, table
from bench.server import bench_server
from bench.sizes import sizes

TOPICS: dict[str, Any] = {
    "leases": leases, "locks": locks, "outbox": outbox, "items": items, "submission": submission, "sqlite": sqlite,
}  # fmt: skip


def main() -> int:
    options = parsed()
    progress = Progress()
    progress("starting PostgreSQL ...")
    with bench_server() as bench:
        chosen = sizes(quick=options.quick, rounds=options.rounds)
        found: list[Finding] = []
        notes: list[str] = []
        for topic in [TOPICS[options.topic]] if options.topic else TOPICS.values():
            parts = [part for part in topic.PARTS if not options.only or part in options.only]
            found += topic.measure(bench, chosen, progress, parts)
            notes += topic.notes() if parts and hasattr(topic, "notes") else []
        where = conditions(bench.version)
    progress.done()
    print(as_json(found, where, notes) if options.output == "json" else table(found, where, notes))
    return 1 if any(finding.verdict == "MISS" for finding in found) else 0


def conditions(postgres: int) -> dict[str, str]:
    """What the numbers depend on; a load above the number of cores means that others were measured too."""
    load = "/".join(f"{value:.1f}" for value in os.getloadavg()[:2])
    python = ".".join(map(str, sys.version_info[:3]))
    return {"postgresql": str(postgres), "python": python, "cores": str(os.cpu_count()), "load (1/5 min)": load}


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description="The speed promises, measured.")
    parser.add_argument("topic", nargs="?", choices=list(TOPICS), help="what to measure; everything without it")
    parts = [part for topic in TOPICS.values() for part in topic.PARTS]
    parser.add_argument("--only", action="append", choices=parts, help="this part; may be repeated")
    parser.add_argument("--rounds", type=positive, help="hand-overs, takeovers, rate rounds and drains")
    parser.add_argument(
        "--quick",
        action="store_true",
        help="fewer rounds: two minutes, four for the outbox, one for items, two for submission, one for sqlite",
    )
    parser.add_argument("-o", "--output", default="table", choices=["table", "json"])
    return parser.parse_args()


def positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a number of rounds")
    return value


if __name__ == "__main__":
    sys.exit(main())
