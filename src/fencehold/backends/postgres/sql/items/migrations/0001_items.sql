-- Items of all kinds. What a lease changes stands first and together, no index knows of it, and pages are half filled: a
-- grant, a renewal and a break then stay on their page and touch no index.
-- The document is json, not jsonb: it comes back as it was put, and \u0000, which jsonb refuses, is no error here; not
-- text, so that people can look into it. Names are compared byte by byte.
CREATE TABLE fencehold_items (
    token           bigint       NOT NULL DEFAULT 0,
    leased_at       timestamptz,
    expires_at      timestamptz,
    lease_ms        bigint,
    state_timestamp timestamptz  NOT NULL DEFAULT clock_timestamp(),
    holder_id       varchar(128) COLLATE "C",
    kind            varchar(128) COLLATE "C" NOT NULL,
    id              varchar(256) COLLATE "C" NOT NULL,
    state           varchar(128) COLLATE "C" NOT NULL,
    document        json         NOT NULL,
    CONSTRAINT fencehold_items_pkey PRIMARY KEY (kind, id),
    -- No holder without a whole lease: the table itself refuses it.
    CONSTRAINT fencehold_items_lease_is_whole
        CHECK (num_nonnulls(holder_id, leased_at, lease_ms, expires_at) IN (0, 4) AND (holder_id IS NULL OR token > 0)),
    -- Infinity and years beyond four digits cannot be read by everybody: one such row would spoil a whole batch.
    CONSTRAINT fencehold_items_times_are_readable
        CHECK (state_timestamp BETWEEN '0002-01-01 UTC' AND '9998-12-31 UTC'
               AND leased_at BETWEEN '0002-01-01 UTC' AND '9998-12-31 UTC'
               AND expires_at BETWEEN '0002-01-01 UTC' AND '9998-12-31 UTC')
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_insert_scale_factor = 0.5);

CREATE INDEX fencehold_items_state_idx ON fencehold_items (kind, state, state_timestamp, id);

-- Tokens increase for ever, also when an item is deleted and put again, and when the table is dropped and made again.
CREATE SEQUENCE IF NOT EXISTS fencehold_items_token AS bigint;
