-- Items of all kinds. Times are UTC text with milliseconds, which sorts as it reads; the table refuses any other form,
-- because it would sort wrongly in silence.
CREATE TABLE fencehold_items (
    kind            TEXT    NOT NULL,
    id              TEXT    NOT NULL,
    state           TEXT    NOT NULL,
    state_timestamp TEXT    NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now'))
                    CHECK (state_timestamp GLOB '????-??-??T??:??:??.???Z'),
    token           INTEGER NOT NULL DEFAULT 0,
    holder_id       TEXT,
    leased_at       TEXT    CHECK (leased_at GLOB '????-??-??T??:??:??.???Z'),
    lease_ms        INTEGER,
    expires_at      TEXT    CHECK (expires_at GLOB '????-??-??T??:??:??.???Z'),
    document        TEXT    NOT NULL,
    PRIMARY KEY (kind, id),
    -- No holder without a whole lease: the table itself refuses it.
    CHECK ((holder_id IS NULL) + (leased_at IS NULL) + (lease_ms IS NULL) + (expires_at IS NULL) IN (0, 4)
           AND (holder_id IS NULL OR token > 0))
);

CREATE INDEX fencehold_items_state_idx ON fencehold_items (kind, state, state_timestamp, id);

-- The last token given out. Tokens increase for ever, also when an item is deleted and put again, and when the table of
-- items is dropped and made again.
CREATE TABLE IF NOT EXISTS fencehold_items_token (
    one   INTEGER NOT NULL PRIMARY KEY CHECK (one = 1),
    token INTEGER NOT NULL
);

-- CREATE TABLE above leaves an older one alone, and so does this.
INSERT OR IGNORE INTO fencehold_items_token (one, token) VALUES (1, 0);
