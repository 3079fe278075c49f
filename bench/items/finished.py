"""What is finished must not matter: the rate of next_for_state beside very many finished items, and without them."""

from __future__ import annotations

import contextlib
import statistics
import uuid
from collections.abc import Iterator

import psycopg
from psycopg import sql

from bench.items.ground import drain, finish, prepare
from bench.report import Finding, Tell
from bench.server import Bench
from bench.sizes import Sizes

RATIO_MIN = 0.9


def measure(bench: Bench, sizes: Sizes, tell: Tell) -> list[Finding]:
    count, rounds = sizes.items.finished, sizes.items.history_rounds
    ratios, full_per_s = [], []
    with another(bench) as full:
        tell(f"item-history: {count} finished items are being written")
        finish(full.dsn, count)
        for index in range(rounds):
            tell(f"item-history: round {index + 1} of {rounds}")
            order = (bench, full) if index % 2 else (full, bench)
            per_s = {one.database: drain(one, "ours", sizes.items.states).per_s for one in order}
            ratios.append(per_s[full.database] / per_s[bench.database])
            full_per_s.append(per_s[full.database])
    name = f"next_for_state beside {count} finished items: rate against none"
    return [
        Finding(name, statistics.median(ratios), "x", RATIO_MIN, at_least=True, detail={"ratios": ratios}),
        Finding("  items leased", statistics.median(full_per_s), "/s"),
    ]


@contextlib.contextmanager
def another(bench: Bench) -> Iterator[Bench]:
    """A database beside it, with empty tables."""
    name = f"items_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(bench.dsn, autocommit=True) as admin:
        admin.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        try:
            made = bench.beside(name)
            prepare(made.dsn)
            yield made
        finally:
            admin.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))
