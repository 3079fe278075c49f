-- Events. Times are UTC text with milliseconds, which sorts as it reads; the table refuses any other form, because it
-- would sort wrongly in silence. A row inserted by hand needs tracking_id, event_type and payload.
CREATE TABLE fencehold_outbox (
    id             INTEGER PRIMARY KEY AUTOINCREMENT,
    tracking_id    TEXT    NOT NULL UNIQUE,
    event_type     TEXT    NOT NULL,
    aggregate_type TEXT,
    aggregate_id   TEXT,
    status         TEXT    NOT NULL DEFAULT 'PENDING'
                   CHECK (status IN ('PENDING', 'PROCESSING', 'COMPLETED', 'FAILED', 'DEAD_LETTER')),
    priority       INTEGER NOT NULL DEFAULT 0,
    created_at     TEXT    NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now'))
                   CHECK (created_at GLOB '????-??-??T??:??:??.???Z'),
    due_at         TEXT    NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now'))
                   CHECK (due_at GLOB '????-??-??T??:??:??.???Z'),
    processed_at   TEXT    CHECK (processed_at GLOB '????-??-??T??:??:??.???Z'),
    retry_count    INTEGER NOT NULL DEFAULT 0,
    max_retries    INTEGER NOT NULL DEFAULT 5,
    locked_until   TEXT    CHECK (locked_until GLOB '????-??-??T??:??:??.???Z'),
    lock_token     TEXT,
    last_error     TEXT,
    root_cause     TEXT,
    metadata       TEXT,
    payload        TEXT    NOT NULL,
    -- No processing without a lease: the table itself refuses it.
    CHECK (status <> 'PROCESSING' OR (locked_until IS NOT NULL AND lock_token IS NOT NULL))
);

-- The status stands last so that events can be counted without reading the table.
CREATE INDEX fencehold_outbox_due_idx ON fencehold_outbox (priority DESC, due_at, id, status)
    WHERE status IN ('PENDING', 'FAILED');

-- Recovered from a worker that did not finish them: perhaps one of them is why. Workers take these one at a time.
CREATE INDEX fencehold_outbox_recovered_idx ON fencehold_outbox (due_at, id)
    WHERE status = 'PENDING' AND retry_count > 0;

CREATE INDEX fencehold_outbox_lapse_idx ON fencehold_outbox (locked_until) WHERE status = 'PROCESSING';

-- The status stands before the id so that each question of a claim in order is one look, however long the aggregate is.
CREATE INDEX fencehold_outbox_aggregate_idx ON fencehold_outbox (aggregate_id, aggregate_type, status, id)
    WHERE aggregate_id IS NOT NULL AND status IN ('PENDING', 'FAILED', 'PROCESSING');

CREATE INDEX fencehold_outbox_dead_idx ON fencehold_outbox (event_type, id) WHERE status = 'DEAD_LETTER';

CREATE TABLE IF NOT EXISTS fencehold_outbox_reaper (
    one       INTEGER NOT NULL PRIMARY KEY CHECK (one = 1),
    ran_at    TEXT    NOT NULL,
    runs      INTEGER NOT NULL,
    recovered INTEGER NOT NULL
);

-- Which consumer has met which event; written in the same transaction as the consumer's effect.
CREATE TABLE IF NOT EXISTS fencehold_outbox_consumed (
    tracking_id  TEXT NOT NULL,
    consumer_id  TEXT NOT NULL,
    processed_at TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')),
    PRIMARY KEY (tracking_id, consumer_id)
) WITHOUT ROWID;
