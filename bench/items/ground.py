"""Tables with items in them, and one drain: eight claimers lease everything there is.

Items are spread over states of STATE_ITEMS each: a claim passes over what is held in its state, and this many are held
when every claimer works on three batches at once. A claimer takes as many batches from every state as the others, so
that each is full and none is asked for in vain.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import psycopg

import fencehold
from bench.children import children
from bench.server import Bench

KIND = "bench"
CLAIMERS = 8
BATCH = 20
BATCHES_PER_STATE = 3  # of each claimer
STATE_ITEMS = CLAIMERS * BATCH * BATCHES_PER_STATE
LOAD = """
INSERT INTO fencehold_items (kind, id, state, document)
SELECT %(kind)s, 'item-' || n, 'STATE-' || n / %(each)s,
       json_build_object('n', n, 'party', 'provider', 'asset', md5(n::text))
  FROM generate_series(0, %(count)s - 1) AS n"""
CLEAR = "DELETE FROM fencehold_items WHERE kind = %(kind)s AND state LIKE 'STATE-%%'"
FINISHED = """
INSERT INTO fencehold_items (kind, id, state, document)
SELECT %(kind)s, 'done-' || n, 'DONE', json_build_object('n', n, 'party', 'provider', 'asset', md5(n::text))
  FROM generate_series(1, %(count)s) AS n"""


@dataclass(frozen=True)
class Drain:
    items: int
    per_s: float
    double_grants: int


def prepare(dsn: str) -> None:
    async def init() -> None:
        async with fencehold.connect(dsn) as store:
            store.items("any")
            await store.init()

    asyncio.run(init())


def load(dsn: str, states: int) -> None:
    """Nothing but these, beside what is finished; analysed, so that the bare statement has the best of plans."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(CLEAR, {"kind": KIND})
        connection.execute("VACUUM fencehold_items")
        connection.execute(LOAD, {"kind": KIND, "count": states * STATE_ITEMS, "each": STATE_ITEMS})
        connection.execute("VACUUM ANALYZE fencehold_items")
        connection.execute("CHECKPOINT")  # a write of everything above must not fall into the drain


def finish(dsn: str, count: int) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(FINISHED, {"kind": KIND, "count": count})


def drain(bench: Bench, who: str, states: int) -> Drain:
    """By a process of its own: `ours` or `bare`."""
    load(bench.dsn, states)
    with children() as start:
        claimers = start("bench.items.claimers", bench.dsn_of(f"items-{who}"), who, str(states))
        claimers.wait_for("ready")
        claimers.say("claim")
        told = claimers.wait_for("claimed")
        claimers.stop()
    count = states * STATE_ITEMS
    if told["items"] != count:
        raise RuntimeError(f"{who} leased {told['items']} of {count} items")
    return Drain(count, count / told["took_s"], told["items"] - told["different"])
