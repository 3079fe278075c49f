-- Items of all kinds. A character outside the basic plane takes two units of an nvarchar, hence the lengths. Kind and id
-- together are longer than a clustered key may be, and would be repeated in every index: rows are numbered instead. No
-- index knows of what a lease changes. The document is text: it comes back as it was put.
CREATE TABLE fencehold_items (
    number          bigint IDENTITY(1, 1) NOT NULL,
    kind            nvarchar(256) COLLATE Latin1_General_BIN2 NOT NULL,
    id              nvarchar(512) COLLATE Latin1_General_BIN2 NOT NULL,
    state           nvarchar(256) COLLATE Latin1_General_BIN2 NOT NULL,
    state_timestamp datetime2(7)  NOT NULL,
    token           bigint        NOT NULL CONSTRAINT fencehold_items_unleased DEFAULT 0,
    holder_id       nvarchar(256) COLLATE Latin1_General_BIN2 NULL,
    leased_at       datetime2(7)  NULL,
    lease_ms        bigint        NULL,
    expires_at      datetime2(7)  NULL,
    document        nvarchar(max) NOT NULL,
    CONSTRAINT fencehold_items_pkey PRIMARY KEY CLUSTERED (number),
    CONSTRAINT fencehold_items_one UNIQUE NONCLUSTERED (kind, id),
    -- No holder without a whole lease: the table itself refuses it.
    CONSTRAINT fencehold_items_lease_is_whole
        CHECK ((holder_id IS NULL AND leased_at IS NULL AND lease_ms IS NULL AND expires_at IS NULL)
               OR (holder_id IS NOT NULL AND leased_at IS NOT NULL AND lease_ms IS NOT NULL AND expires_at IS NOT NULL
                   AND token > 0))
);
GO
CREATE INDEX fencehold_items_state_idx ON fencehold_items (kind, state, state_timestamp, number);
GO
-- READPAST passes over the rows that others have locked, never over a table: many locks must not become one on it.
ALTER TABLE fencehold_items SET (LOCK_ESCALATION = DISABLE);
GO
-- Tokens increase for ever, also when an item is deleted and put again, and when the table is dropped and made again.
IF OBJECT_ID(N'fencehold_items' + N'_token') IS NULL
CREATE SEQUENCE fencehold_items_token AS bigint START WITH 1 INCREMENT BY 1;
