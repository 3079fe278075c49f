"""The limit that ratios are taken against: psycopg on a plain table, lease and token, nothing else.

One statement completes batch k and claims batch k + 1: one round trip, one commit. Every completion is checked: by id,
token and status, and the number of rows is compared. The verbs are those of peers/hits.py; `enqueue` is COPY.
"""

from __future__ import annotations

import json
import time
import uuid

import psycopg

from bench.outbox.peers.hits import BATCH, DSN, LatencyProbe, batches, hit, out, serve

SCHEMA = """
CREATE TABLE outbox (
    id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    status       smallint NOT NULL DEFAULT 0,  -- 0 pending, 1 processing, 2 completed
    attempts     smallint NOT NULL DEFAULT 0,
    locked_until timestamptz,
    lock_token   uuid,
    created_at   timestamptz NOT NULL DEFAULT now(),
    payload      jsonb NOT NULL
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02);
CREATE INDEX outbox_pending ON outbox (id) WHERE status = 0;
CREATE INDEX outbox_leased ON outbox (locked_until) WHERE status = 1;
"""
UNFINISHED = "SELECT count(*) FROM outbox WHERE status IN (0, 1)"
CLAIM = """UPDATE outbox SET status = 1, attempts = attempts + 1, lock_token = %s,
                  locked_until = now() + interval '30 seconds'
            WHERE id IN (SELECT id FROM outbox WHERE status = 0 ORDER BY id LIMIT %s FOR UPDATE SKIP LOCKED)
        RETURNING id, payload"""
COMPLETE = """UPDATE outbox SET status = 2, locked_until = NULL
               WHERE id = ANY(%s) AND lock_token = %s AND status = 1 RETURNING 1"""
COMPLETE_AND_CLAIM = f"""WITH done AS ({COMPLETE}), next AS ({CLAIM})
    SELECT (SELECT count(*) FROM done), id, payload FROM next
     UNION ALL SELECT (SELECT count(*) FROM done), NULL, NULL"""
ADD = "WITH added AS (INSERT INTO outbox (payload) VALUES (%s) RETURNING 1) SELECT pg_notify('outbox', '') FROM added"


def setup() -> None:
    with psycopg.connect(DSN, autocommit=True) as connection:
        connection.execute(SCHEMA)


def enqueue(count: int) -> None:
    with psycopg.connect(DSN) as connection:
        began_s = time.perf_counter()
        for batch in batches(count):
            with connection.cursor() as cursor, cursor.copy("COPY outbox (payload) FROM STDIN") as copy:
                for i in batch:
                    copy.write_row((json.dumps({"i": i}),))
            connection.commit()
        out({"secs": time.perf_counter() - began_s})


def worker(mode: str) -> None:
    with psycopg.connect(DSN, autocommit=True) as connection:
        connection.prepare_threshold = 0
        if mode == "lat":
            listen(connection)
        drain(connection, int(BATCH or "1000") if mode == "best" else 10)


def drain(connection: psycopg.Connection, batch: int) -> None:
    """Until nothing is left."""
    cursor = connection.cursor(binary=True)
    held: list[int] = []
    token = uuid.uuid4()
    while True:
        next_token = uuid.uuid4()
        rows = cursor.execute(COMPLETE_AND_CLAIM, (held, token, next_token, batch)).fetchall()
        assert rows[-1][0] == len(held), "nobody else completes what is held here"
        held, token = [row[1] for row in rows if row[1] is not None], next_token
        if not held:
            return
        for _ in held:
            hit()


def listen(connection: psycopg.Connection) -> None:
    """Claim when woken, as two statements: the floor of the latency."""
    connection.execute("LISTEN outbox")
    while True:
        for _ in connection.notifies(timeout=1, stop_after=1):
            pass
        while rows := connection.execute(CLAIM, (token := uuid.uuid4(), 10)).fetchall():
            for _ in rows:
                hit()
            connection.execute(COMPLETE, ([row[0] for row in rows], token))


def latency(count: int, path: str) -> None:
    with psycopg.connect(DSN, autocommit=True) as connection:
        connection.prepare_threshold = 0
        LatencyProbe(path, count).run_sync(lambda i: connection.execute(ADD, (json.dumps({"i": i}),)))


def fill(count: int) -> None:
    with psycopg.connect(DSN, autocommit=True) as connection:
        connection.execute(
            """INSERT INTO outbox (status, attempts, lock_token, payload)
               SELECT 2, 1, gen_random_uuid(), jsonb_build_object('i', g) FROM generate_series(1, %s) g""",
            (count,),
        )
        connection.execute("VACUUM ANALYZE outbox")


if __name__ == "__main__":
    serve({verb.__name__: verb for verb in (setup, enqueue, worker, latency, fill)}, UNFINISHED)
