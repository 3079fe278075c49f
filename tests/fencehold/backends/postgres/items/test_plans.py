"""The plans of items' statements: the same whether the table was just loaded or analysed, however much is finished."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from fencehold.backends.postgres.backend import PostgresBackend
from fencehold.backends.sql.statements import ITEMS, Statements, pyformat
from fencehold.ports.items import NewItem

SQL = Statements("fencehold.backends.postgres", ITEMS.default_table, pyformat, ITEMS)
LIMIT_S = 20.0
FINISHED = """
INSERT INTO fencehold_items (kind, id, state, document)
SELECT 'deal', 'old ' || n, 'DONE', '{}' FROM generate_series(1, 100000) AS n"""
WAITING = """
INSERT INTO fencehold_items (kind, id, state, document)
SELECT 'deal', 'new ' || n, 'NEW', '{}' FROM generate_series(1, 100) AS n"""
RESTING = "{" + ",".join(f"resting {n}" for n in range(1000)) + "}"
WHOLE_TABLE = ("Seq Scan", "Bitmap", "Hash", "Merge Join", "Sort")
KEY = {"kind": "deal", "id": "new 1", "holder": "ada", "token": 1, "patience": "1s"}
KEYS = {"kind": "deal", "ids": "{new 1,new 2}", "holders": "{ada,ada}", "tokens": "{1,2}", "patience": "1s"}
PARAMS: dict[str, dict[str, Any]] = {
    "next_for_state": {
        "kind": "deal",
        "state": "NEW",
        "limit": 20,
        "holder": "ada",
        "lease_ms": 60000,
        "skip": "{}",
        "since": "-infinity",
        "before": "infinity",
    },
    "renew": {**KEYS, "lease_ms": 60000},
    "break": KEYS,
    "get": KEYS,
    "acquire": {**KEY, "lease_ms": 60000},
    "save": {**KEY, "state": "DONE", "document": None},
    "delete": KEY,
}


@pytest.fixture
def items_url(every_postgres_url: str) -> str:
    with psycopg.connect(every_postgres_url, autocommit=True) as conn:
        conn.execute(PostgresBackend(every_postgres_url, "fencehold_leases").items("deal").schema.script().encode())
    return every_postgres_url


def test_no_statement_reads_what_is_finished(items_url: str) -> None:
    with psycopg.connect(items_url, autocommit=True) as conn:
        conn.execute(SQL["plans"].encode(), {"is_local": False})
        for statement in (FINISHED, WAITING, "ANALYZE fencehold_items"):
            conn.execute(statement.encode())
            for name, params in PARAMS.items():
                plan = explained(conn, name, params)
                assert [word for word in WHOLE_TABLE if f"{word} " in plan] == [], f"{name}, {statement}:\n{plan}"
                assert "using fencehold_items_pkey" in plan
            for skip in ("{}", RESTING):
                plan = explained(conn, "next_for_state", {**PARAMS["next_for_state"], "skip": skip})
                assert "using fencehold_items_state_idx" in plan
                assert "hashed SubPlan" in plan, "each is looked up, not compared with all"
                assert [word for word in WHOLE_TABLE if f"{word} " in plan] == [], plan


def test_a_lease_is_granted_renewed_and_broken_without_touching_an_index(items_url: str) -> None:
    with psycopg.connect(items_url) as conn:
        conn.execute(WAITING.encode())
        conn.commit()
        for _ in range(5):
            taken = conn.execute(SQL["next_for_state"].encode(), PARAMS["next_for_state"]).fetchall()
            conn.commit()
            ids, tokens, holders = ("{" + ",".join(str(row[place]) for row in taken) + "}" for place in (0, 4, 5))
            for name in ("renew", "renew", "break"):
                keys = {**KEYS, "ids": ids, "tokens": tokens, "holders": holders, "lease_ms": 60000}
                conn.execute(SQL[name].encode(), keys)
                conn.commit()
        conn.execute("SELECT pg_stat_force_next_flush()")
        conn.commit()
        query = b"SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = 'fencehold_items'"
        assert conn.execute(query).fetchall() == [(400, 400)]


async def test_a_store_s_own_session_has_these_plans(items_url: str) -> None:
    """The settings are made by whoever runs the statements, not only by this test."""
    items = PostgresBackend(items_url, "fencehold_leases").items("deal")
    await items.port.put(NewItem("7", "NEW", "{}", "ada"), LIMIT_S)
    connection = items._session._connection
    assert connection is not None
    cursor = await connection.execute("SELECT current_setting('enable_seqscan')")
    assert await cursor.fetchall() == [("off",)]
    await items.close()


def explained(conn: psycopg.Connection[Any], name: str, params: dict[str, Any]) -> str:
    """Of the generic plan, which is what a prepared statement soon runs with."""
    rows = conn.execute(f"EXPLAIN (COSTS OFF) {SQL[name]}".encode(), params).fetchall()
    return "\n".join(row[0] for row in rows)
