"""What lies in the table must not matter: a million finished events, or a bulk load that nobody analyzed."""

from __future__ import annotations

import statistics

import psycopg

from bench.outbox.databases import run_verb
from bench.outbox.drains import drain, drain_copy
from bench.outbox.ground import Ground
from bench.outbox.ours import TABLE
from bench.outbox.systems import OURS
from bench.report import Finding
from bench.server import Bench

RATIO_MIN = 0.9
MORE_ROUNDS = 2  # these drains are short, so there are more of them


def measure(ground: Ground) -> list[Finding]:
    return [*with_history(ground), *without_statistics(ground)]


def with_history(ground: Ground) -> list[Finding]:
    finished, pending = ground.sizes.history_finished, ground.sizes.history_pending
    rounds = ground.sizes.rounds + MORE_ROUNDS
    with ground.databases.empty(OURS) as alone, ground.databases.empty(OURS) as full:
        ground.tell(f"history: {finished} finished events are being written")
        run_verb(OURS, full.dsn, "fill", str(finished))
        execute(full, "CHECKPOINT")  # a write of everything above must not fall into one of the two
        ratios, rates = [], {"alone": list[float](), "full": list[float]()}
        for index in range(rounds):
            ground.tell(f"history: round {index + 1} of {rounds}")
            for name, bench in (("alone", alone), ("full", full)) if index % 2 else (("full", full), ("alone", alone)):
                run_verb(OURS, bench.dsn, "enqueue", str(pending))
                rates[name].append(drain(ground.databases, OURS, bench, pending, "c10").per_s)
            execute(alone, f"TRUNCATE {TABLE}")
            ratios.append(rates["full"][-1] / rates["alone"][-1])
    name = f"{finished} finished beside {pending} pending: rate against an empty table"
    return [
        Finding(name, statistics.median(ratios), "x", RATIO_MIN, at_least=True, detail={"rounds": ratios}),
        *(Finding(f"  {key}", statistics.median(rates[key]), "/s") for key in rates),
    ]


def without_statistics(ground: Ground) -> list[Finding]:
    events, rounds = OURS.events("c10", ground.sizes.drain_s), ground.sizes.rounds
    known, unknown = (ground.databases.loaded(OURS, events, analyzed=analyzed) for analyzed in (True, False))
    ratios = []
    for index in range(rounds):
        ground.tell(f"bulk load without statistics: round {index + 1} of {rounds}")
        order = (known, unknown) if index % 2 else (unknown, known)
        rate = {source: drain_copy(ground.databases, OURS, source, events, "c10").per_s for source in order}
        ratios.append(rate[unknown] / rate[known])
    name = f"right after a bulk load of {events}, no statistics: rate against an analyzed table"
    return [Finding(name, statistics.median(ratios), "x", RATIO_MIN, at_least=True, detail={"rounds": ratios})]


def execute(bench: Bench, statement: str) -> None:
    with psycopg.connect(bench.dsn, autocommit=True) as connection:
        connection.execute(statement.encode())
