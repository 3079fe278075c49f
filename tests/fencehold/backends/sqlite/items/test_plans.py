"""The plans of items' statements on SQLite: an item is found by its id or by its state, however many are finished."""

import contextlib
import json
import sqlite3
from pathlib import Path

from fencehold.backends.sql.statements import ITEMS, Statements
from fencehold.backends.sqlite.backend import SqliteBackend

SQL = Statements("fencehold.backends.sqlite", ITEMS.default_table, topic=ITEMS)
FINISHED = """
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20000)
INSERT INTO fencehold_items (kind, id, state, document) SELECT 'deal', 'old ' || i, 'DONE', '{}' FROM n"""
NAMES = ("next_for_state", "renew", "break", "get", "acquire", "save", "delete", "put")
RESTING = json.dumps([f"resting {n}" for n in range(1000)])
PARAMS = {
    "kind": "deal", "id": "7", "state": "NEW", "document": "{}", "holder": "ada", "token": 1, "limit": 20,
    "lease": "+60.000 seconds", "lease_ms": 60000, "keys": '[["7","ada",1]]', "ids": '["7"]', "skip": RESTING,
    "since": "", "before": "~",
}  # fmt: skip
BY_KEY = (
    "(kind=? AND id=?)",
    "(kind=? AND state=?)",
    "(kind=? AND state=? AND state_timestamp>? AND state_timestamp<?)",
    "(rowid=?)",
)


def test_no_statement_reads_what_is_finished(tmp_path: Path) -> None:
    path = str(tmp_path / "items.db")
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.executescript(SqliteBackend(path, "fencehold_leases").items("deal").schema.script())
        for statement in (FINISHED, "ANALYZE"):
            connection.execute(statement)
            for name in NAMES:
                steps = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {SQL[name]}", PARAMS)]
                reads = [
                    step for step in steps if "fencehold_items " in f"{step} " or step.startswith(("SEARCH", "SCAN i"))
                ]
                assert [step for step in reads if not step.endswith(BY_KEY)] == [], f"{name}: {steps}"
