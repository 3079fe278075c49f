"""The plans of a worker's statements: the same whether the table was just loaded, analysed, or is empty."""

from __future__ import annotations

from typing import Any

import psycopg

import fencehold
from fencehold.backends.sql.statements import OUTBOX, Statements, pyformat

SQL = Statements("fencehold.backends.postgres", "outbox", pyformat, OUTBOX)
LOAD = "INSERT INTO outbox (event_type, payload) SELECT 'bench', '{}' FROM generate_series(1, 5000)"
HISTORY = "UPDATE outbox SET status = 'COMPLETED', processed_at = now() WHERE id % 20 <> 0"
WHOLE_TABLE = ("Seq Scan", "Bitmap", "Hash", "Merge Join")
KEYS = {"ids": "{01a1e28d-fe7d-7152-96c0-99fdbc106dd3}", "tokens": "{worker/1}"}
ASK = {"limit": 10, "token": "worker/2", "lease": 30.0, "types": None, "isolated": True, "suspects": 1}
FLOORS = {"levels": "{0}", "floors": "{-infinity}", "floor_ids": "{0}", "asked": 1}
PARAMS: dict[str, dict[str, Any]] = {
    "turn": {**KEYS, **ASK, **FLOORS},
    "claim": ASK,
    "complete": KEYS,
    "renew": {**KEYS, "lease": 30.0},
    "release": KEYS,
    "reap": {"limit": 1000},
}
STATES = {
    "empty": [],
    "just loaded": [LOAD],
    "loaded and analysed": [LOAD, "ANALYZE outbox"],
    "mostly finished": [LOAD, HISTORY],
    "mostly finished and analysed": [LOAD, HISTORY, "ANALYZE outbox"],
    "analysed while empty, then loaded": ["ANALYZE outbox", LOAD],
}


async def test_no_statement_of_a_worker_reads_the_whole_table(every_postgres_url: str) -> None:
    async with fencehold.connect(every_postgres_url) as store:
        store.outbox()
        await store.init()
    with psycopg.connect(every_postgres_url, autocommit=True) as conn:
        conn.execute(SQL["plans"].encode(), {"is_local": False})
        for state, statements in STATES.items():
            for statement in ["TRUNCATE outbox", *statements]:
                conn.execute(statement.encode())
            for name, params in PARAMS.items():
                plan = explained(conn, name, params)
                assert [word for word in WHOLE_TABLE if f"{word} " in plan] == [], f"{name}, {state}:\n{plan}"


async def test_a_claim_is_found_by_the_index_of_what_is_due(every_postgres_url: str) -> None:
    async with fencehold.connect(every_postgres_url) as store:
        store.outbox()
        await store.init()
    with psycopg.connect(every_postgres_url, autocommit=True) as conn:
        conn.execute(LOAD.encode())
        conn.execute(SQL["plans"].encode(), {"is_local": False})
        for name in ("turn", "claim"):
            plan = explained(conn, name, PARAMS[name])
            assert "using outbox_due_idx" in plan
            assert "using outbox_pkey" in plan
            assert "Sort" not in plan
            assert "outbox_lapse_idx" not in plan, "a key would be compared with every event in flight"
        assert "using outbox_lapse_idx" in explained(conn, "reap", PARAMS["reap"])


async def test_a_worker_s_own_session_has_these_plans(postgres_url: str) -> None:
    """The settings are made by whoever runs the statements, not only by this test."""
    async with fencehold.connect(postgres_url) as store:
        await store.init()
        outbox = store.outbox("outbox")
        await outbox.add("bench", {})
        await outbox.claim(1, "worker")
        session = outbox._events_here()._session  # type: ignore[attr-defined]
        cursor = await session._connection.execute("SELECT current_setting('enable_seqscan')")
        assert await cursor.fetchall() == [("off",)]


def explained(conn: psycopg.Connection[Any], name: str, params: dict[str, Any]) -> str:
    """Of the generic plan, which is what a prepared statement soon runs with."""
    rows = conn.execute(f"EXPLAIN (COSTS OFF) {SQL[name]}".encode(), params).fetchall()
    return "\n".join(row[0] for row in rows)
