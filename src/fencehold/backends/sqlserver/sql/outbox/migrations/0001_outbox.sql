-- Events. A character outside the basic plane takes two units of an nvarchar, hence the lengths. Rows are numbered, and
-- lie in that order: new ones are written at one end. A row inserted by hand needs event_type and payload.
CREATE TABLE fencehold_outbox (
    id             bigint IDENTITY(1, 1) NOT NULL,
    created_at     datetime2(7)     NOT NULL CONSTRAINT fencehold_outbox_created DEFAULT SYSUTCDATETIME(),
    due_at         datetime2(7)     NOT NULL CONSTRAINT fencehold_outbox_due DEFAULT SYSUTCDATETIME(),
    locked_until   datetime2(7)     NULL,
    processed_at   datetime2(7)     NULL,
    priority       smallint         NOT NULL CONSTRAINT fencehold_outbox_usual DEFAULT 0,
    retry_count    smallint         NOT NULL CONSTRAINT fencehold_outbox_untried DEFAULT 0,
    max_retries    smallint         NOT NULL CONSTRAINT fencehold_outbox_tries DEFAULT 5,
    status         varchar(11)      COLLATE Latin1_General_BIN2 NOT NULL CONSTRAINT fencehold_outbox_new DEFAULT 'PENDING',
    lock_token     nvarchar(400)    COLLATE Latin1_General_BIN2 NULL,
    last_error     nvarchar(max)    NULL,
    root_cause     nvarchar(max)    NULL,
    tracking_id    uniqueidentifier NOT NULL CONSTRAINT fencehold_outbox_any DEFAULT NEWID(),
    event_type     nvarchar(256)    COLLATE Latin1_General_BIN2 NOT NULL,
    aggregate_type nvarchar(512)    COLLATE Latin1_General_BIN2 NULL,
    aggregate_id   nvarchar(512)    COLLATE Latin1_General_BIN2 NULL,
    payload        nvarchar(max)    NOT NULL,
    metadata       nvarchar(max)    NULL,
    CONSTRAINT fencehold_outbox_pkey PRIMARY KEY CLUSTERED (id),
    CONSTRAINT fencehold_outbox_one UNIQUE NONCLUSTERED (tracking_id),
    CONSTRAINT fencehold_outbox_status_known
        CHECK (status IN ('PENDING', 'PROCESSING', 'COMPLETED', 'FAILED', 'DEAD_LETTER')),
    -- No processing without a lease: the table itself refuses it.
    CONSTRAINT fencehold_outbox_processing_is_leased
        CHECK (status <> 'PROCESSING' OR (locked_until IS NOT NULL AND lock_token IS NOT NULL))
);
GO
-- In the order of the claim, with all that a claim asks: it finds and locks its events here, and no others.
CREATE INDEX fencehold_outbox_due_idx ON fencehold_outbox (priority DESC, due_at, id)
    INCLUDE (event_type, status, retry_count) WHERE status IN ('PENDING', 'FAILED');
GO
-- Recovered from a worker that did not finish them: perhaps one of them is why. Workers take these one at a time.
CREATE INDEX fencehold_outbox_recovered_idx ON fencehold_outbox (due_at, id)
    INCLUDE (event_type, status, retry_count) WHERE status = 'PENDING' AND retry_count > 0;
GO
CREATE INDEX fencehold_outbox_lapse_idx ON fencehold_outbox (locked_until, id)
    INCLUDE (lock_token, status) WHERE status = 'PROCESSING';
GO
-- Two names of an aggregate together are longer than a key may be. The status stands before the id so that each
-- question of a claim in order is one look, however long the aggregate is.
CREATE INDEX fencehold_outbox_aggregate_idx ON fencehold_outbox (aggregate_id, status, id)
    INCLUDE (aggregate_type) WHERE aggregate_id IS NOT NULL AND status IN ('PENDING', 'FAILED', 'PROCESSING');
GO
CREATE INDEX fencehold_outbox_dead_idx ON fencehold_outbox (event_type, id) WHERE status = 'DEAD_LETTER';
GO
-- READPAST passes over the rows that others have locked, never over a table: many locks must not become one on it.
ALTER TABLE fencehold_outbox SET (LOCK_ESCALATION = DISABLE);
GO
-- One row for ever: runs only change it, so no two of them can both be the first.
IF OBJECT_ID(N'fencehold_outbox' + N'_reaper') IS NULL
CREATE TABLE fencehold_outbox_reaper (
    one       int          NOT NULL CONSTRAINT fencehold_outbox_reaper_pkey PRIMARY KEY
                           CONSTRAINT fencehold_outbox_reaper_one CHECK (one = 1),
    ran_at    datetime2(7) NULL,
    runs      bigint       NOT NULL,
    recovered bigint       NOT NULL
);
GO
INSERT INTO fencehold_outbox_reaper (one, runs, recovered)
SELECT 1, 0, 0 WHERE NOT EXISTS (SELECT 1 FROM fencehold_outbox_reaper);
GO
-- Which consumer has met which event; written in the same transaction as the consumer's effect.
IF OBJECT_ID(N'fencehold_outbox' + N'_consumed') IS NULL
CREATE TABLE fencehold_outbox_consumed (
    tracking_id  uniqueidentifier NOT NULL,
    consumer_id  nvarchar(256)    COLLATE Latin1_General_BIN2 NOT NULL,
    processed_at datetime2(7)     NOT NULL CONSTRAINT fencehold_outbox_consumed_when DEFAULT SYSUTCDATETIME(),
    CONSTRAINT fencehold_outbox_consumed_pkey PRIMARY KEY CLUSTERED (tracking_id, consumer_id)
);
GO
ALTER TABLE fencehold_outbox_consumed SET (LOCK_ESCALATION = DISABLE);
